"""Axpy against loops."""

from __future__ import annotations

import pytest

from tests.reference.layer_check import check_layer, refusal_of_type, spread_values
from tests.reference.slow_fork_layers import slow_axpy

pytestmark = pytest.mark.tf


@pytest.mark.parametrize("factors", [(2, 3), (2, 3, 1, 1)])
@pytest.mark.parametrize("channels_last", [False, True])
def test_axpy(factors: tuple[int, ...], channels_last: bool) -> None:
    bottoms = [spread_values(*factors, seed=1), spread_values(2, 3, 2, 4, seed=2), spread_values(2, 3, 2, 4, seed=3)]
    check_layer('top: "n0" type: "Axpy"', lambda a, x, y: [slow_axpy(a, x, y)], bottoms, channels_last=channels_last)


@pytest.mark.parametrize("factors", [(2,), (3, 2), (2, 3, 1), (2, 3, 4, 4)])
def test_axpy_refuses_other_factors(factors: tuple[int, ...]) -> None:
    shape_text = f"({', '.join(map(str, factors))})"
    assert refusal_of_type("Axpy", "", factors, (2, 3, 4, 4), (2, 3, 4, 4)) == (
        f'bottom "x0" has shape {shape_text}; expected one factor per sample and channel, (2, 3) or (2, 3, 1, 1)'
    )


def test_axpy_refuses_unequal_images() -> None:
    assert refusal_of_type("Axpy", "", (2, 3), (2, 3, 4, 4), (2, 3, 4, 5)) == (
        'bottom "x2" has shape (2, 3, 4, 5); expected that of bottom "x1", (2, 3, 4, 4)'
    )
