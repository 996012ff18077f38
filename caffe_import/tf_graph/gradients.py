"""Gradients of a net's blobs and parameters for gradients put on its outputs: Caffe's ``Backward``, for inspection.

Training has a leaner way (``train_step``); here every blob has a gradient by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from caffe_import.devices.compute_plan import PLAIN, ComputePlan
from caffe_import.net.net_spec import NetSpec
from caffe_import.net.param_layout import Vector
from caffe_import.tf_graph.builder import build_forward
from caffe_import.tf_graph.data_layout import NHWC_TO_NCHW, Blob

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Passes:
    """A forward and backward pass, as numpy arrays in Caffe's shapes.

    Attributes:
        blobs: Every blob after the forward pass.
        loss: The weighted loss.
        params: float32 (n_params,) after the forward pass, which moves BatchNorm's sums.
        layer_state: What layers carry to the next pass.
        blob_gradients: Blob -> gradient of the content that its producer gave it; None where no gradient arrives.
        param_gradients: float32 (n_params,); zero where none arrives.
    """

    blobs: Mapping[str, Array]
    loss: Array
    params: Vector
    layer_state: Mapping[str, Array]
    blob_gradients: Mapping[str, Array | None]
    param_gradients: Vector


def run_passes(
    net: NetSpec,
    params: Vector,
    feeds: Mapping[str, Array],
    *,
    layer_state: Mapping[str, Array],
    top_gradients: Mapping[str, Array],
    seed: int = 0,
    plan: ComputePlan = PLAIN,
    device: str = "",
    devices: Sequence[str] = (),
) -> Passes:
    """Run a forward and a backward pass; each call traces anew, so use the function for single looks.

    Args:
        net: Any phase.
        params: float32 (n_params,).
        feeds: Blob name -> float32 in Caffe's axis order, for every name in ``builder.fed_blobs``.
        layer_state: As ``builder.initial_layer_state`` or the pass before gave it.
        top_gradients: Blob -> gradient put on its last content; other tops with a loss weight get that weight.
        seed: For layers that draw numbers.
        plan: How the passes are computed; what is returned is float32 whatever its precision.
        device: TensorFlow's name of the device to compute on; empty: its own choice.
        devices: TensorFlow's name of each device of a plan that has several.

    Raises:
        NetError: A layer type that cannot be computed.
    """
    forward = build_forward(net, plan, devices)
    blob_names = [name for name in net.blob_shapes]
    arrives: dict[str, bool] = {}

    def traced(vector: tf.Tensor, state: Any, fed: Any, seeds: Any) -> Any:
        produced: dict[str, _Produced] = {}

        def tap(name: str, blob: Blob) -> Blob:
            tensor = tf.identity(blob.values)
            produced.setdefault(name, _Produced(tensor, blob.is_channels_last))
            return blob.wrap(tensor)

        entries = forward.entries(vector)
        result = forward.on_entries(entries, state, tf.constant([seed, 0], tf.int32), fed, tap)
        tops, weights = _targets(net, result.blobs, seeds)
        gradients = _gradients(tops, [produced[name].tensor for name in blob_names], weights)
        of_blobs = {}
        for name, gradient in zip(blob_names, gradients, strict=True):
            arrives[name] = gradient is not None
            of_blobs[name] = tf.zeros(())
            if gradient is not None:
                # MVN in place gives its blob four axes.
                gradient = tf.cast(produced[name].to_caffe(gradient), tf.float32)
                of_blobs[name] = tf.reshape(gradient, tf.shape(result.blobs[name].caffe))
        of_params = _gradients(tops, entries, weights)
        params_after = [result.param_updates.get(k, entry) for k, entry in enumerate(entries)]
        blobs = {name: result.blobs[name].as_dtype(tf.float32).caffe for name in blob_names}
        joined = _joined([g if g is not None else tf.zeros_like(e) for g, e in zip(of_params, entries, strict=True)])
        return blobs, result.loss, _joined(params_after), dict(result.state), of_blobs, joined

    arguments = (params, dict(layer_state), dict(feeds), dict(top_gradients))
    with tf.device(device or None):
        tensors = tf.nest.map_structure(lambda array: tf.constant(array, tf.float32), arguments)
        outputs = tf.function(traced, autograph=False)(*tensors)
    blobs, loss, params_after, state, of_blobs, of_params = tf.nest.map_structure(
        lambda tensor: tensor.numpy(), outputs
    )
    return Passes(
        blobs,
        loss,
        params_after,
        state,
        {name: of_blobs[name] if arrives[name] else None for name in blob_names},
        of_params,
    )


@dataclass(frozen=True)
class _Produced:
    tensor: tf.Tensor
    is_channels_last: bool

    def to_caffe(self, gradient: tf.Tensor) -> tf.Tensor:
        gradient = tf.convert_to_tensor(gradient)
        return tf.transpose(gradient, NHWC_TO_NCHW) if self.is_channels_last else gradient


def _targets(
    net: NetSpec, blobs: Mapping[str, Blob], seeds: Mapping[str, tf.Tensor]
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    names, weights = list(seeds), list(seeds.values())
    for layer in net.layers:
        for top, weight in zip(layer.tops, layer.loss_weights, strict=True):
            if weight != 0 and top not in seeds:
                names.append(top)
                weights.append(np.float32(weight) * tf.ones_like(blobs[top].caffe, tf.float32))
    return [blobs[name].as_dtype(tf.float32).caffe for name in names], weights


def _gradients(tops: Sequence[tf.Tensor], sources: Sequence[tf.Tensor], weights: Sequence[tf.Tensor]) -> Sequence[Any]:
    return tf.gradients(tops, sources, weights) if tops and sources else [None] * len(sources)


def _joined(entries: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.concat([tf.reshape(entry, (-1,)) for entry in entries], 0) if entries else tf.zeros((0,))
