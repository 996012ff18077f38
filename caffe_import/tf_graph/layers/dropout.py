"""How TensorFlow computes Dropout: stateless random bits, as few as the ratio needs."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.dropout import DropoutOptions
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter

_WORD = 2**32
_BYTE = 2**8


@emitter("Dropout")
def emit_dropout(request: EmitRequest) -> Emission:
    """In TRAIN zero each value with probability ratio and scale the others by 1 / (1 - ratio); in TEST, nothing."""
    options = request.layer.definition.options
    assert isinstance(options, DropoutOptions)
    bottom = request.bottoms[0]
    if not request.is_training or options.ratio == 0:
        return Emission((bottom,))
    inputs = bottom.values
    mask = keep_mask(inputs, options.ratio, request.seed)
    return Emission((bottom.wrap(tf.where(mask, inputs * (1.0 / (1.0 - options.ratio)), 0.0)),))


def keep_mask(inputs: tf.Tensor, ratio: float, seed: tf.Tensor) -> tf.Tensor:
    """Return bools of the shape of ``inputs``, False with probability ``ratio`` (to 2**-32), by ``seed`` (2,).

    Random numbers are the main cost of dropout. If the ratio is a multiple of 1/256, a random byte decides as well as a
    word, and one draw gives four bytes.
    """
    if (ratio * _BYTE).is_integer():
        n_values = tf.size(inputs)
        words = tf.random.stateless_uniform(((n_values + 3) // 4,), seed, None, None, tf.int32, alg="philox")
        draws = tf.reshape(tf.reshape(tf.bitcast(words, tf.uint8), (-1,))[:n_values], tf.shape(inputs))
        return draws >= tf.constant(int(ratio * _BYTE), tf.uint8)
    words = tf.random.stateless_uniform(tf.shape(inputs), seed, None, None, tf.int32, alg="philox")
    return words >= tf.constant(round(ratio * _WORD) - _WORD // 2, tf.int32)
