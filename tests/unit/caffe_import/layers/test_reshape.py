"""Reshape against loops."""

from __future__ import annotations

import pytest

from tests.reference.layer_check import check_layer, refusal, spread_values

pytestmark = pytest.mark.tf


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ("shape { dim: 0 dim: -1 }", (2, 24)),
        ("shape { dim: 4 dim: -1 dim: 2 }", (4, 6, 2)),
        ("axis: 1 num_axes: 2 shape { dim: 6 dim: 2 }", (2, 6, 2, 2)),
        ("axis: -1 shape { dim: 1 }", (2, 3, 4, 2, 1)),
        ("axis: 0 num_axes: 0 shape { dim: 1 }", (1, 2, 3, 4, 2)),
        ("axis: 1 shape { dim: 0 dim: -1 }", (2, 3, 8)),
    ],
)
@pytest.mark.parametrize("channels_last", [False, True])
def test_reshape(options: str, shape: tuple[int, ...], channels_last: bool) -> None:
    check_layer(
        f'top: "n0" type: "Reshape" reshape_param {{ {options} }}',
        lambda x: [x.reshape(shape)],
        [spread_values(2, 3, 4, 2)],
        channels_last=channels_last,
    )


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ("shape { dim: -1 dim: -1 }", "at most one -1"),
        ("shape { dim: 7 dim: -1 }", "not a multiple of 7"),
        ("shape { dim: 5 }", "has 6 values, top shape (5,) has 5"),
        ("axis: 3 shape { dim: 1 }", "axis=3 num_axes=-1 does not fit"),
        ("shape { dim: 1 dim: 6 dim: 0 }", "has no axis 2 to copy"),
    ],
)
def test_reshape_refusals(options: str, part: str) -> None:
    assert part in refusal(f'top: "n0" type: "Reshape" reshape_param {{ {options} }}', (2, 3))
