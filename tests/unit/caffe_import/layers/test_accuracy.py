"""Accuracy against a loop over positions and classes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.layer_check import define, in_both_orders, refusal, run_layer, spread_values
from tests.reference.slow_losses import slow_accuracy

pytestmark = pytest.mark.tf


@pytest.mark.parametrize(
    ("shape", "axis", "labels", "channels_last"),
    in_both_orders(((6, 4), 1, (6,)), ((2, 4, 3, 2), 1, (2, 3, 2)), ((2, 3, 4), 2, (2, 3, 1))),
)
@pytest.mark.parametrize("top_k", [1, 2])
@pytest.mark.parametrize("ignore", [None, 0])
def test_values(
    shape: tuple[int, ...], axis: int, labels: tuple[int, ...], top_k: int, ignore: int | None, channels_last: bool
) -> None:
    x, y = spread_values(*shape), np.random.default_rng(1).integers(0, 3, labels)  # class 3 is absent
    ignoring = "" if ignore is None else f"ignore_label: {ignore}"
    text = f'top: "a" top: "c" type: "Accuracy" accuracy_param {{ axis: {axis} top_k: {top_k} {ignoring} }}'
    run = run_layer(text, [x, y], channels_last=channels_last)
    total, per_class = slow_accuracy(x, y, axis, top_k=top_k, ignore=ignore)
    np.testing.assert_allclose(run.tops[0], total, rtol=1e-6)
    np.testing.assert_allclose(run.tops[1], per_class, rtol=1e-6)


def test_ties_count_against_the_true_class() -> None:
    run = run_layer('top: "a" type: "Accuracy"', [[[1.0, 1.0, 0.0], [2.0, 1.0, 1.0]], [0, 0]])
    assert run.tops[0] == 0.5


def test_nothing_to_count_gives_zero() -> None:
    run = run_layer('top: "a" type: "Accuracy" accuracy_param { ignore_label: 1 }', [[[1.0, 0.0]], [1]])
    assert run.tops[0] == 0


def test_definition() -> None:
    definition = define('top: "a" top: "c" type: "Accuracy"', (5, 7), (5,))
    assert definition.top_shapes == ((), (7,))
    assert definition.default_loss_weight == 0
    assert refusal('top: "a" type: "Accuracy" accuracy_param { top_k: 8 }', (5, 7), (5,)).endswith(
        "accuracy_param.top_k=8: must be between 1 and the 7 classes"
    )
