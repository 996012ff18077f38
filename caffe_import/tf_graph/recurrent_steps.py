"""What LSTM and RNN share in the graph: the input's product for all steps at once, the state's way in and out."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from caffe_import.recurrence import RecurrentOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import EmitRequest


def inputs_of_steps(request: EmitRequest, options: RecurrentOptions) -> list[tf.Tensor]:
    """Return for each step W_x x_t + b (+ W_static x_static), (N, rows)."""
    sequence = tf.reshape(request.bottoms[0].caffe, (-1, options.n_inputs))
    weights, bias = request.params[:2]
    driven = tf.nn.bias_add(tf.matmul(sequence, weights, transpose_b=True), bias)
    driven = tf.reshape(driven, (options.n_steps, options.n_streams, -1))
    if options.n_static:
        static = tf.reshape(request.bottoms[2].caffe, (options.n_streams, options.n_static))
        driven += tf.matmul(static, request.params[2], transpose_b=True)
    return list(tf.unstack(driven))


def continuations(request: EmitRequest) -> list[tf.Tensor]:
    """Return cont of each step, (N, 1): 0 where a sequence begins, else 1."""
    return list(tf.unstack(tf.stop_gradient(request.bottoms[1].caffe)[:, :, tf.newaxis]))


def initial_states(request: EmitRequest, options: RecurrentOptions, names: Sequence[str]) -> list[tf.Tensor]:
    """Return the states (N, H) before the first step: given by bottoms, or carried over. They take no gradient."""
    if options.is_exposed:
        given = [bottom.caffe for bottom in request.bottoms[options.n_inputs_before_state :]]
    else:
        given = [request.state[name] for name in names]
    return [tf.stop_gradient(state[0]) for state in given]


def exposed(options: RecurrentOptions, states: Sequence[tf.Tensor]) -> tuple[Blob, ...]:
    """Return the last states (N, H) as tops (1, N, H) if the layer shows them."""
    return tuple(Blob.from_caffe(state[tf.newaxis]) for state in states) if options.is_exposed else ()


def carried(options: RecurrentOptions, states: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Return what the next forward pass starts from, (1, N, H) by name; nothing if the states are exposed."""
    if options.is_exposed:
        return {}
    return {name: tf.stop_gradient(state[tf.newaxis]) for name, state in states.items()}
