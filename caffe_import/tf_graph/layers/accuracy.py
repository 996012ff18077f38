"""How TensorFlow computes Accuracy."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.accuracy import AccuracyOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.operations.class_positions import counted_labels, scores_by_position


@emitter("Accuracy")
def emit_accuracy(request: EmitRequest) -> Emission:
    """Count positions where fewer than top_k other classes score at least as high as the true one."""
    options = request.layer.definition.options
    assert isinstance(options, AccuracyOptions)
    shape = request.layer.bottom_shapes[0]
    scores = scores_by_position(request.bottoms[0], shape, options.axis)
    labels, counts = counted_labels(request.bottoms[1], options.ignore_label)
    true_score = tf.gather(scores, labels, axis=1, batch_dims=1)
    # The true class itself is among those that score at least as high.
    n_rivals = tf.reduce_sum(tf.cast(scores >= true_score[:, tf.newaxis], tf.int32), axis=1) - 1
    weights = tf.ones_like(true_score) if counts is None else tf.cast(counts, tf.float32)
    hits = tf.where(n_rivals < options.top_k, weights, 0.0)
    tops = [Blob.from_caffe(tf.math.divide_no_nan(tf.reduce_sum(hits), tf.reduce_sum(weights)))]
    if len(request.layer.definition.top_shapes) == 2:
        n_classes = shape[options.axis]
        n_hits = tf.math.unsorted_segment_sum(hits, labels, n_classes)
        present = tf.math.unsorted_segment_sum(weights, labels, n_classes)
        tops.append(Blob.from_caffe(tf.math.divide_no_nan(n_hits, present)))
    return Emission(tuple(tops))
