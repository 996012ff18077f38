"""How TensorFlow computes DummyData: constant tops are constants, random ones are drawn anew in every pass."""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt

import numpy as np
import tensorflow as tf

from caffe_import.layers.dummy_data import DummyDataOptions
from caffe_import.net.fillers import fan, fill
from caffe_import.net.layer_registry import Shape
from caffe_import.proto import caffe_pb2
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter

Filler = caffe_pb2.FillerParameter


@emitter("DummyData")
def emit_dummy_data(request: EmitRequest) -> Emission:
    """Fill each top, with a seed of its own."""
    options = request.layer.definition.options
    assert isinstance(options, DummyDataOptions)
    tops = zip(options.fillers, request.layer.definition.top_shapes, strict=True)
    blobs = [
        Blob.from_caffe(_filled(filler, shape, request.seed + tf.constant([0, position])))
        for position, (filler, shape) in enumerate(tops, start=1)
    ]
    return Emission(tuple(blobs))


def _filled(filler: Filler, shape: Shape, seed: tf.Tensor) -> tf.Tensor:
    if draw := _DRAWS.get(filler.type):
        return draw(filler, shape, seed)
    return tf.constant(fill(filler, shape, np.random.default_rng(0)))


def _uniform(filler: Filler, shape: Shape, seed: tf.Tensor) -> tf.Tensor:
    return tf.random.stateless_uniform(shape, seed) * (filler.max - filler.min) + filler.min


def _gaussian(filler: Filler, shape: Shape, seed: tf.Tensor) -> tf.Tensor:
    values = tf.random.stateless_normal(shape, seed, filler.mean, filler.std)
    if filler.sparse == -1:
        return values
    mask = tf.random.stateless_uniform(shape, seed + tf.constant([1, 0])) < filler.sparse / shape[0]
    return tf.where(mask, values, 0.0)


def _positive_unitball(_: Filler, shape: Shape, seed: tf.Tensor) -> tf.Tensor:
    rows = tf.random.stateless_uniform((shape[0], prod(shape[1:])), seed)
    return tf.reshape(rows / tf.reduce_sum(rows, axis=1, keepdims=True), shape)


def _xavier(filler: Filler, shape: Shape, seed: tf.Tensor) -> tf.Tensor:
    reach = sqrt(3.0 / fan(filler, shape))
    return tf.random.stateless_uniform(shape, seed, -reach, reach)


def _msra(filler: Filler, shape: Shape, seed: tf.Tensor) -> tf.Tensor:
    return tf.random.stateless_normal(shape, seed, 0.0, sqrt(2.0 / fan(filler, shape)))


_DRAWS: dict[str, Callable[[Filler, Shape, tf.Tensor], tf.Tensor]] = {
    "uniform": _uniform,
    "gaussian": _gaussian,
    "positive_unitball": _positive_unitball,
    "xavier": _xavier,
    "msra": _msra,
}
