"""EuclideanLoss against loops."""

from __future__ import annotations

import pytest

from tests.reference.layer_check import check_layer, define, refusal, spread_values
from tests.reference.slow_losses import slow_euclidean_loss

pytestmark = pytest.mark.tf


@pytest.mark.parametrize("shape", [(3, 4), (2, 2, 2, 2), (5,)])
@pytest.mark.parametrize("channels_last", [False, True])
def test_euclidean(shape: tuple[int, ...], channels_last: bool) -> None:
    check_layer(
        'top: "loss" type: "EuclideanLoss"',
        lambda a, b: [slow_euclidean_loss(a, b)],
        [spread_values(*shape, seed=1), spread_values(*shape, seed=2)],
        channels_last=channels_last,
    )


@pytest.mark.parametrize("channels_last", [False, True])
def test_euclidean_pairs_values_in_caffes_order(channels_last: bool) -> None:
    check_layer(
        'top: "loss" type: "EuclideanLoss"',
        lambda a, b: [slow_euclidean_loss(a, b)],
        [spread_values(2, 2, 3, 1, seed=1), spread_values(2, 3, 1, 2, seed=2)],
        channels_last=channels_last,
    )


def test_euclidean_compares_values_per_sample_only() -> None:
    text = 'top: "loss" type: "EuclideanLoss"'
    assert define(text, (4, 2, 3), (4, 6)).top_shapes == ((),)
    assert refusal(text, (4, 2), (4, 3)).endswith(
        '"x0" (4, 2) and "x1" (4, 3) must have the same number of values per sample'
    )
