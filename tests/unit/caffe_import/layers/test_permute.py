"""Permute against loops."""

from __future__ import annotations

import pytest

from tests.reference.layer_check import check_layer, define, refusal_of_type, spread_values
from tests.reference.slow_fork_layers import slow_permute

pytestmark = pytest.mark.tf


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (0, 3, 1, 2), (1, 0, 2, 3), (3, 2, 1, 0)])
@pytest.mark.parametrize("channels_last", [False, True])
def test_permute(order: tuple[int, ...], channels_last: bool) -> None:
    text = " ".join(f"order: {axis}" for axis in order)
    check_layer(
        f'top: "n0" type: "Permute" permute_param {{ {text} }}',
        lambda x: [slow_permute(x, order=order)],
        [spread_values(2, 3, 4, 5)],
        channels_last=channels_last,
    )


def test_permute_appends_the_axes_not_named() -> None:
    text = 'top: "n0" type: "Permute" permute_param { order: 2 }'
    check_layer(text, lambda x: [slow_permute(x, order=(2, 0, 1))], [spread_values(2, 3, 4)])
    assert define(text, (2, 3, 4)).top_shapes == ((4, 2, 3),)


@pytest.mark.parametrize("order", [[0, 0], [1, 3]])
def test_permute_refuses_axes_that_are_not_there(order: list[int]) -> None:
    text = " ".join(f"order: {axis}" for axis in order)
    finding = f"permute_param.order={order}: the bottom has 3 axes; allowed: each of 0 to 2 at most once"
    assert refusal_of_type("Permute", f"permute_param {{ {text} }}", (2, 3, 4)) == finding
