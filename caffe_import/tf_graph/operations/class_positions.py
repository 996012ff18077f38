"""Scores with the classes on the last axis: the form of Softmax-like losses and Accuracy."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.net.layer_registry import Shape
from caffe_import.net.shapes.axes import split_at
from caffe_import.net.shapes.loss_options import LossOptions
from caffe_import.tf_graph.data_layout import Blob, batch_extent
from caffe_import.tf_graph.emitters import Emission


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


def labels_by_position(blob: Blob) -> tf.Tensor:
    """Return labels (positions,) as int32; Caffe carries them as floats and truncates."""
    return tf.cast(tf.reshape(blob.caffe, (-1,)), tf.int32)


def counted_labels(blob: Blob, ignore_label: int | None) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Return labels (positions,) int32, and bool per position: is it not ignored? None where nothing can be.

    An ignored label need not be a class: it is replaced by 0, because the kernels refuse others.
    """
    labels = labels_by_position(blob)
    if ignore_label is None:
        return labels, None
    counts = tf.not_equal(labels, ignore_label)
    return tf.where(counts, labels, 0), counts


def loss_divisor(
    loss: LossOptions, n_positions: int | tf.Tensor, n_samples: int | tf.Tensor, counts: tf.Tensor | None
) -> tf.Tensor | float:
    """Return what a sum of losses is divided by; never below 1.

    Source: BVLC Caffe, src/caffe/layers/softmax_loss_layer.cpp, SoftmaxWithLossLayer::get_normalizer.

    Args:
        loss: The layer's options.
        n_positions: All positions, ignored ones included; a scalar where only the run knows it.
        n_samples: Product of the axes before the class axis, likewise.
        counts: Bool per position: is it not ignored? None where nothing can be ignored.
    """
    if loss.normalization == "VALID" and counts is not None:
        return tf.maximum(tf.reduce_sum(tf.cast(counts, tf.float32)), 1.0)
    fixed = {"FULL": n_positions, "VALID": n_positions, "BATCH_SIZE": n_samples, "NONE": 1}
    divisor = fixed[loss.normalization]
    return float(max(divisor, 1)) if isinstance(divisor, int) else tf.cast(tf.maximum(divisor, 1), tf.float32)


def summed_loss(losses: tf.Tensor, counts: tf.Tensor | None, loss: LossOptions, shape: Shape, axis: int) -> tf.Tensor:
    """Return the scalar loss: the sum over the positions that count over ``loss_divisor``.

    Args:
        losses: (positions,).
        counts: As from ``counted_labels``.
        loss: The layer's options.
        shape: Caffe shape of the scores.
        axis: Canonical axis of the classes.
    """
    inner = split_at(shape, axis)[2]
    n_positions = batch_extent(losses)
    if counts is not None:
        losses = tf.where(counts, losses, 0.0)
    return tf.reduce_sum(losses) / loss_divisor(loss, n_positions, n_positions // inner, counts)


def loss_and_probabilities(loss: tf.Tensor, scores: tf.Tensor, shape: Shape, axis: int, n_tops: int) -> Emission:
    """Return the tops of a softmax loss; the second one, the probabilities, takes no gradient."""
    if n_tops == 1:
        return Emission((Blob.from_caffe(loss),))
    probabilities = tf.stop_gradient(tf.nn.softmax(scores))
    return Emission((Blob.from_caffe(loss), _blob_from_positions(probabilities, shape, axis)))


def _blob_from_positions(values: tf.Tensor, shape: Shape, axis: int) -> Blob:
    """Return the blob of Caffe shape ``shape`` whose values by position are ``values`` (positions, classes)."""
    _, classes, inner = split_at(shape, axis)
    return Blob.from_caffe(
        tf.reshape(tf.transpose(tf.reshape(values, (-1, inner, classes)), (0, 2, 1)), (-1, *shape[1:]))
    )
