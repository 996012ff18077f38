"""Graph of LSTM and RNN: the input's product for all steps at once, the steps, the states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from caffe_import.net.shapes.recurrence import RecurrentOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import EmitRequest

UNROLLED_STEPS = 32
"""Sequences of up to so many steps are unrolled, as Caffe does. At 64 to 128 steps a loop takes 0.9 to 1.3 times as
long (measured alone on one core); short sequences lose more by it, and are traced quickly anyway."""
BLOCK_STEPS = 8
"""Steps of longer ones that a loop makes at a time: tracing does not grow with the sequence."""

States = tuple[tf.Tensor, ...]
Step = Callable[[States, tf.Tensor, tf.Tensor], States]
"""(states (N, H), input of the step (N, rows), cont (N, 1)) -> states after it, the hidden one first."""


def run_steps(request: EmitRequest, options: RecurrentOptions, states: States, step: Step) -> tuple[tf.Tensor, States]:
    """Return the hidden state of every step, (T, N, H), and the states after the last."""
    driven, conts = _inputs_of_steps(request, options), _continuations(request)
    n_blocks = 0 if options.n_steps <= UNROLLED_STEPS else options.n_steps // BLOCK_STEPS
    n_looped = n_blocks * BLOCK_STEPS
    parts = []
    if n_blocks:
        part, states = _looped(driven[:n_looped], conts[:n_looped], states, step)
        parts.append(part)
    if n_looped < options.n_steps:
        part, states = _unrolled(driven[n_looped:], conts[n_looped:], states, step)
        parts.append(part)
    return tf.concat(parts, axis=0) if len(parts) > 1 else parts[0], states


def _unrolled(driven: tf.Tensor, conts: tf.Tensor, states: States, step: Step) -> tuple[tf.Tensor, States]:
    outputs = []
    for driven_step, cont in zip(tf.unstack(driven), tf.unstack(conts), strict=True):
        states = step(states, driven_step, cont)
        outputs.append(states[0])
    return tf.stack(outputs), states


def _looped(driven: tf.Tensor, conts: tf.Tensor, states: States, step: Step) -> tuple[tf.Tensor, States]:
    n_blocks = driven.shape[0] // BLOCK_STEPS
    driven_blocks, cont_blocks = (
        tf.TensorArray(tf.float32, n_blocks).unstack(tf.reshape(rows, (n_blocks, BLOCK_STEPS, *rows.shape[1:])))
        for rows in (driven, conts)
    )
    outputs = tf.TensorArray(tf.float32, n_blocks, element_shape=(BLOCK_STEPS, *states[0].shape))

    def body(number: tf.Tensor, states: States, outputs: tf.TensorArray) -> Any:
        block, states = _unrolled(driven_blocks.read(number), cont_blocks.read(number), states, step)
        return number + 1, states, outputs.write(number, block)

    _, states, outputs = tf.while_loop(
        lambda number, *_: number < n_blocks, body, (tf.constant(0), states, outputs), parallel_iterations=1
    )
    return tf.reshape(outputs.stack(), (-1, *states[0].shape)), states


def _inputs_of_steps(request: EmitRequest, options: RecurrentOptions) -> tf.Tensor:
    """Return for each step W_x x_t + b (+ W_static x_static), (T, N, rows)."""
    sequence = tf.reshape(request.bottoms[0].caffe, (-1, options.n_inputs))
    weights, bias = request.params[:2]
    driven = tf.nn.bias_add(tf.matmul(sequence, weights, transpose_b=True), bias)
    driven = tf.reshape(driven, (options.n_steps, options.n_streams, -1))
    if options.n_static:
        static = tf.reshape(request.bottoms[2].caffe, (options.n_streams, options.n_static))
        driven += tf.matmul(static, request.params[2], transpose_b=True)
    return driven


def _continuations(request: EmitRequest) -> tf.Tensor:
    """Return cont of each step, (T, N, 1): 0 where a sequence begins, else 1."""
    return tf.stop_gradient(request.bottoms[1].caffe)[:, :, tf.newaxis]


def initial_states(request: EmitRequest, options: RecurrentOptions, names: Sequence[str]) -> States:
    """Return the states (N, H) before the first step: given by bottoms, or carried over. They take no gradient."""
    if options.is_exposed:
        first_states = [bottom.caffe for bottom in request.bottoms[options.n_inputs_before_state :]]
    else:
        first_states = [request.state[name] for name in names]
    return tuple(tf.stop_gradient(state[0]) for state in first_states)


def exposed(options: RecurrentOptions, states: Sequence[tf.Tensor]) -> tuple[Blob, ...]:
    """Return the last states (N, H) as tops (1, N, H) if the layer exposes them."""
    return tuple(Blob.from_caffe(state[tf.newaxis]) for state in states) if options.is_exposed else ()


def carried(options: RecurrentOptions, states: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Return what the next forward pass starts from, (1, N, H) by name; nothing if the states are exposed."""
    if options.is_exposed:
        return {}
    return {name: tf.stop_gradient(state[tf.newaxis]) for name, state in states.items()}
