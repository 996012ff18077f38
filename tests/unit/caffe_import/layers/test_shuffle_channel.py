"""ShuffleChannel against loops."""

from __future__ import annotations

import pytest

from tests.reference.layer_check import check_layer, in_both_orders, refusal_of_type, spread_values
from tests.reference.slow_fork_layers import slow_shuffle_channel

pytestmark = pytest.mark.tf


@pytest.mark.parametrize("group", [1, 2, 3])
@pytest.mark.parametrize(("shape", "channels_last"), in_both_orders(((2, 6, 2, 3),), ((2, 6),), ((2, 6, 3),)))
def test_shuffle_channel(group: int, shape: tuple[int, ...], channels_last: bool) -> None:
    check_layer(
        f'top: "n0" type: "ShuffleChannel" shuffle_channel_param {{ group: {group} }}',
        lambda x: [slow_shuffle_channel(x, group=group)],
        [spread_values(*shape)],
        channels_last=channels_last,
    )


@pytest.mark.parametrize("group", [0, 4])
def test_shuffle_channel_refuses_groups_that_do_not_divide(group: int) -> None:
    assert refusal_of_type("ShuffleChannel", f"shuffle_channel_param {{ group: {group} }}", (2, 6, 4, 4)) == (
        f"shuffle_channel_param.group={group} must divide the 6 channels of the bottom"
    )


def test_shuffle_channel_refuses_a_list() -> None:
    assert refusal_of_type("ShuffleChannel", "", (4,)) == "bottom has shape (4); allowed: 2 or more axes (N, C, ...)"
