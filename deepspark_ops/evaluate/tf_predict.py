"""Class probabilities of a trained net, batch by batch. The one file of this stage that needs TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from caffe_import.net.net_spec import NetSpec
from caffe_import.net.param_layout import Vector
from caffe_import.tf_graph.predict import compile_forward
from deepspark_ops.evaluate.score_blob import ScoreBlob
from deepspark_ops.evaluate.scores import softmax

Feeds = Mapping[str, npt.NDArray[np.float32]]
Predict = Callable[[Feeds], npt.NDArray[np.float64]]
"""Takes the data layers' blobs, full batches; returns probabilities (batch_size, n_classes), a fresh array."""


def compile_probabilities(net: NetSpec, params: Vector, scores: ScoreBlob, *, n_threads: int) -> Predict:
    """Compile ``net`` and return the function that gives class probabilities.

    Args:
        net: Built for phase TEST.
        params: Its parameter vector, shape (n_params,).
        scores: Where its class scores are.
        n_threads: TensorFlow's threads; fixed for the process by the first net compiled in it.

    Raises:
        NetError: A layer type that cannot be computed.
    """
    forward = compile_forward(net, n_threads=n_threads, outputs=[scores.name])
    held = tf.constant(params)  # copied into TensorFlow's memory once, not at every batch

    def predict(feeds: Feeds) -> npt.NDArray[np.float64]:
        values = forward(held, feeds)[scores.name]
        values = values.reshape(len(values), scores.n_classes)
        return values.astype(np.float64) if scores.is_probability else softmax(values)

    return predict
