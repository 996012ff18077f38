"""Gradients of a class's score with respect to a net's input and the top of its last convolution, for saliency maps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from caffe_import.net.net_spec import NetSpec
from caffe_import.net.param_layout import Vector
from caffe_import.net.score_path import last_convolution, score_before_activation
from caffe_import.tf_graph.builder import build_forward, fed_blobs, initial_layer_state
from caffe_import.tf_graph.data_layout import NHWC_TO_NCHW, Blob

Array = npt.NDArray[Any]
_NO_SEED = (0, 0)


@dataclass(frozen=True)
class ScoreGradients:
    """Gradients of a score of each sample, float32, in Caffe's axis order.

    Attributes:
        scores: (n,), the score before its activation.
        source: (n, ...), gradient with respect to the net's input.
        feature_maps: (n, channels, h, w), top of the last convolution; None without a convolution.
        feature_gradients: Gradient with respect to ``feature_maps``, of the same shape; None without a convolution.
    """

    scores: Array
    source: Array
    feature_maps: Array | None
    feature_gradients: Array | None


class ScoreGradientFunction:
    """The compiled passes. Keeps nothing between calls and is safe to share.

    A gradient also flows where Caffe cuts it in training: to the data, and past ``propagate_down: false``.

    Attributes:
        score: Blob of the scores, before their activation.
        convolution: Top of the last convolution; None without a convolution.
    """

    def __init__(self, net: NetSpec, *, source: str, result: str, device: str = "") -> None:
        """Fix the signature; the first call traces the passes.

        Args:
            net: Of phase TEST.
            source: Blob that is fed with the samples.
            result: Blob of the result, perhaps after its activation.
            device: TensorFlow's name of the device; empty: its own choice.

        Raises:
            NetError: A layer type that cannot be computed, or no such blob.
        """
        net.blob_shape(source)
        net.blob_shape(result)
        self.score = score_before_activation(net, result)
        self.convolution = last_convolution(net, source, self.score)
        self._source = source
        self._device = device
        self._net = replace(
            net, layers=tuple(replace(layer, propagate_down=(True,) * len(layer.bottoms)) for layer in net.layers)
        )
        self._fed = fed_blobs(net)
        signature = [
            tf.TensorSpec((net.params.n_params,), tf.float32),
            {name: tf.TensorSpec(shape, tf.float32) for name, shape in self._fed.items()},
            tf.TensorSpec((self._fed[source][0],), tf.int32),
        ]
        self._function = tf.function(self._traced, input_signature=signature, autograph=False)

    def __call__(self, params: Vector, feeds: Mapping[str, Array], positions: Array) -> ScoreGradients:
        """Return the gradients of a batch.

        Args:
            params: float32 (n_params,).
            feeds: Blob -> float32, for every name in ``builder.fed_blobs``; others are ignored.
            positions: int32 (n,), position of each sample's score among the values of the score's blob.
        """
        with tf.device(self._device or None):
            computed = self._function(params, {name: feeds[name] for name in self._fed}, positions.astype(np.int32))
        values = {name: tensor.numpy() for name, tensor in computed.items()}
        return ScoreGradients(
            values["scores"], values["source"], values.get("feature_maps"), values.get("feature_gradients")
        )

    def _traced(self, params: tf.Tensor, feeds: Any, positions: tf.Tensor) -> dict[str, tf.Tensor]:
        features: list[Blob] = []

        def tap(name: str, blob: Blob) -> Blob:
            if name != self.convolution or features:  # a later content is of a layer in place
                return blob
            features.append(blob.wrap(tf.identity(blob.values)))
            return features[0]

        forward = build_forward(self._net)
        state = {name: tf.constant(value) for name, value in initial_layer_state(self._net).items()}
        seed = tf.constant(_NO_SEED, tf.int32)
        result = forward.on_entries(forward.entries(params), state, seed, feeds, tap)
        blob = result.blobs[self.score].as_dtype(tf.float32).caffe
        rows = tf.reshape(blob, (tf.shape(positions)[0], -1))
        scores = tf.gather(rows, positions, axis=1, batch_dims=1)
        sources = [feeds[self._source], *(feature_blob.values for feature_blob in features)]
        gradients = tf.gradients(scores, sources, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        outputs = {"scores": scores, "source": gradients[0]}
        for feature_blob, gradient in zip(features, gradients[1:], strict=True):
            in_order = tf.transpose(gradient, NHWC_TO_NCHW) if feature_blob.is_channels_last else gradient
            outputs |= {"feature_maps": feature_blob.caffe, "feature_gradients": in_order}
        return outputs
