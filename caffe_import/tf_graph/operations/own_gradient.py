"""A gradient of one's own for operations of a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

WithGradient = Callable[..., tuple[Any, Callable[..., Any]]]


def own_gradient(compute: WithGradient) -> Callable[..., Any]:
    """Return a function of tensors whose gradient is the function that ``compute`` returns.

    As ``tf.custom_gradient`` in a graph. A registry of ``tf.custom_gradient`` keeps each gradient and its whole graph
    as long as the process lives. The graphs of a net with samples of many sizes would fill the memory.

    Args:
        compute: Takes tensors; returns a tensor or a list of tensors, and a function from their gradients to the
            gradients of the arguments.
    """

    def computed(*arguments: tf.Tensor) -> Any:
        if tf.executing_eagerly():
            return tf.custom_gradient(compute)(*arguments)
        results, gradient = compute(*arguments)
        tensors = tf.nest.flatten(results)

        def of_operation(_operation: tf.Operation, *gradients: tf.Tensor) -> list[tf.Tensor | None]:
            return [*[None] * len(tensors), *tf.nest.flatten(gradient(*gradients[: len(tensors)]))]

        graph = tf.compat.v1.get_default_graph()
        with graph._override_gradient_function({"IdentityN": of_operation}):
            outputs = tf.identity_n([*tensors, *arguments])
        return tf.nest.pack_sequence_as(results, outputs[: len(tensors)])

    return computed
