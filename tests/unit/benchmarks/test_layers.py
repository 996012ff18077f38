"""The pairs that the benchmark of layers compares do the same amount of work."""

from __future__ import annotations

from math import prod
from types import ModuleType

import pytest
import tensorflow as tf

SCRIPT = "layers"

pytestmark = pytest.mark.tf


def top_shape(layer, *shapes) -> tuple[int, ...]:
    specs = [tf.TensorSpec(shape) for shape in shapes if shape is not None]
    return tuple(tf.function(layer, autograph=False).get_concrete_function(*specs).output_shapes)


def test_both_sides_make_as_many_values_or_multiply_adds(script: ModuleType) -> None:
    for name, pair in script.PAIRS.items():
        layer, weights = script.our_layer(pair)
        own_shape = top_shape(layer, (script.BATCH, *pair.image[1:], pair.image[0]), weights)
        peer_shape = top_shape(pair.neighbour, (script.BATCH, *pair.neighbour_image), pair.neighbour_weights)
        if weights is None:
            assert own_shape == peer_shape, name
        else:
            taps, their_taps = prod(weights[1:]), prod(pair.neighbour_weights[:3])
            assert prod(own_shape) * taps == prod(peer_shape) * their_taps, name


def test_a_pass_runs(script: ModuleType) -> None:
    cost = script.timed(script.compiled(lambda x: tf.nn.relu(x), (2, 2, 1), None), 1)
    assert cost.ms > 0
