"""Graph of LSTM and RNN: the input's product for all steps at once, the steps, the states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from caffe_import.net.shapes.recurrence import RecurrentOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import EmitRequest
from caffe_import.tf_graph.fixed_weights import computed_once, in_graph, is_fixed
from caffe_import.tf_graph.operations.own_gradient import own_gradient
from caffe_import.tf_graph.operations.weight_product import times_weights, transposed

UNROLLED_STEPS = 32
"""Sequences of up to so many steps are unrolled, as Caffe does. At 64 to 128 steps a loop takes 0.9 to 1.3 times as
long (measured alone on one core); short sequences lose more by it, and are traced quickly anyway."""
BLOCK_STEPS = 8
"""Steps of longer ones that a loop makes at a time: tracing does not grow with the sequence."""
STREAMS_TO_TRANSPOSE = 16
"""From so many streams on, the product of a step takes up to 2.5 times as long where the weights are read by rows (one
core, 1,000 units); below, as long."""

States = tuple[tf.Tensor, ...]
Advance = Callable[[States, tf.Tensor, tf.Tensor], States]
"""(states (N, H), W_x x_t + b + W_h (cont h) (N, rows), cont (N, 1)) -> states after the step, the hidden one first."""
Step = Callable[[States, tf.Tensor, tf.Tensor], States]
"""The same of W_x x_t + b alone."""


def run_steps(
    request: EmitRequest, options: RecurrentOptions, states: States, weights: tf.Tensor, advance: Advance
) -> tuple[tf.Tensor, States]:
    """Return the hidden state of every step, (T, N, H), and the states after the last.

    Args:
        request: Of the layer.
        options: Of the layer.
        states: Before the first step.
        weights: W_h, (rows, H).
        advance: Makes a step.
    """
    conts = _continuations(request)
    product = _product_of_step(weights, options.n_streams)

    def step(states: States, driven: tf.Tensor, cont: tf.Tensor) -> States:
        return advance(states, driven + product(cont * states[0]), cont)

    def hidden_before() -> tf.Tensor:
        return conts * tf.concat([states[0][tf.newaxis], hiddens[:-1]], axis=0)

    driven = _with_gradient_of_weights(_inputs_of_steps(request, options), weights, hidden_before)
    hiddens, last_states = _all_steps(driven, conts, states, options.n_steps, step)
    return hiddens, last_states


def _product_of_step(weights: tf.Tensor, n_streams: int) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return the function of h with the value W_h h. The function has a gradient of h, and none of W_h."""
    is_transposed = n_streams >= STREAMS_TO_TRANSPOSE
    factor = in_graph(computed_once(transposed, weights) if is_transposed else weights)

    def with_gradient(hidden: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        rows = tf.matmul(hidden, factor, transpose_b=not is_transposed)
        return rows, lambda gradient: tf.matmul(gradient, weights)

    product: Callable[[tf.Tensor], tf.Tensor] = own_gradient(with_gradient)
    return product


def _with_gradient_of_weights(
    driven: tf.Tensor, weights: tf.Tensor, hidden_before: Callable[[], tf.Tensor]
) -> tf.Tensor:
    """Return ``driven``, (T, N, rows), unchanged. The gradient of W_h is one product for all steps.

    A product for each step would read and write the whole gradient of W_h at each step.

    Args:
        driven: What the steps' products are added to: both have the same gradient.
        weights: W_h, (rows, H).
        hidden_before: Returns cont h before each step, (T, N, H). Called when the gradient is traced.
    """
    if is_fixed(weights):
        return driven

    @own_gradient
    def unchanged(driven: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, Callable[..., tuple[tf.Tensor, ...]]]:
        def gradient(of_rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            rows, hiddens = (tf.reshape(of_steps, (-1, of_steps.shape[2])) for of_steps in (of_rows, hidden_before()))
            return of_rows, tf.matmul(rows, hiddens, transpose_a=True)

        return tf.identity(driven), gradient

    return unchanged(driven, weights)


def _all_steps(
    driven: tf.Tensor, conts: tf.Tensor, states: States, n_steps: int, step: Step
) -> tuple[tf.Tensor, States]:
    n_blocks = 0 if n_steps <= UNROLLED_STEPS else n_steps // BLOCK_STEPS
    n_looped = n_blocks * BLOCK_STEPS
    parts = []
    if n_blocks:
        part, states = _looped(driven[:n_looped], conts[:n_looped], states, step)
        parts.append(part)
    if n_looped < n_steps:
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
    driven = tf.nn.bias_add(times_weights(sequence, weights), in_graph(bias))
    driven = tf.reshape(driven, (options.n_steps, options.n_streams, -1))
    if options.n_static:
        static = tf.reshape(request.bottoms[2].caffe, (options.n_streams, options.n_static))
        driven += times_weights(static, request.params[2])
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
