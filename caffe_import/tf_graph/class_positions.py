"""Scores with their classes on the last axis: the form in which Softmax-like losses and Accuracy compute."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.axes import split_at
from caffe_import.layer_registry import Shape
from caffe_import.loss_options import LossOptions
from caffe_import.tf_graph.data_layout import Blob


def scores_by_position(blob: Blob, shape: Shape, axis: int) -> tf.Tensor:
    """Return scores (positions, classes); positions run over the other axes in Caffe's order.

    Args:
        blob: Scores of Caffe shape ``shape``.
        shape: Any rank.
        axis: Canonical axis of the classes.
    """
    _, classes, inner = split_at(shape, axis)
    if inner == 1:
        return tf.reshape(blob.caffe, (-1, classes))
    if axis == 1 and len(shape) == 4:
        return tf.reshape(blob.channels_last, (-1, classes))
    return tf.reshape(tf.transpose(tf.reshape(blob.caffe, (-1, classes, inner)), (0, 2, 1)), (-1, classes))


def blob_from_positions(values: tf.Tensor, shape: Shape, axis: int) -> Blob:
    """Return the blob of Caffe shape ``shape`` whose values by position are ``values`` (positions, classes)."""
    _, classes, inner = split_at(shape, axis)
    return Blob.from_caffe(tf.reshape(tf.transpose(tf.reshape(values, (-1, inner, classes)), (0, 2, 1)), shape))


def labels_by_position(blob: Blob) -> tf.Tensor:
    """Return labels (positions,) as int32; Caffe carries them as floats and truncates."""
    return tf.cast(tf.reshape(blob.caffe, (-1,)), tf.int32)


def loss_divisor(loss: LossOptions, n_positions: int, n_samples: int, counts: tf.Tensor | None) -> tf.Tensor | float:
    """Return what a sum of losses is divided by; never below 1.

    Source: BVLC Caffe, src/caffe/layers/softmax_loss_layer.cpp, SoftmaxWithLossLayer::get_normalizer.

    Args:
        loss: The layer's options.
        n_positions: All positions, ignored ones included.
        n_samples: Product of the axes before the class axis.
        counts: Bool per position: is it not ignored? None where nothing can be ignored.
    """
    if loss.normalization == "VALID" and counts is not None:
        return tf.maximum(tf.reduce_sum(tf.cast(counts, tf.float32)), 1.0)
    fixed = {"FULL": n_positions, "VALID": n_positions, "BATCH_SIZE": n_samples, "NONE": 1}
    return float(max(fixed[loss.normalization], 1))
