"""Slice against loops."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.layer_check import check_layer, define, refusal, spread_values

pytestmark = pytest.mark.tf


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("channels_last", [False, True])
def test_slice(axis: int, channels_last: bool) -> None:
    shape = [2, 2, 2, 2]
    shape[axis] = 5
    check_layer(
        f'top: "n0" top: "n1" top: "n2" type: "Slice" slice_param {{ axis: {axis} slice_point: 1 slice_point: 3 }}',
        lambda x: np.split(x, [1, 3], axis),
        [spread_values(*shape)],
        channels_last=channels_last,
    )


def test_slice_options() -> None:
    text = 'top: "n0" top: "n1" type: "Slice"'
    assert define(text, (2, 6)).top_shapes == ((2, 3), (2, 3))
    assert "does not divide into 2 equal tops" in refusal(text, (2, 5))
    assert "needs 1 rising points inside it" in refusal(f"{text} slice_param {{ slice_point: 6 }}", (2, 6))
    assert "give axis" in refusal(f"{text} slice_param {{ slice_dim: 1 axis: 1 }}", (2, 6))
