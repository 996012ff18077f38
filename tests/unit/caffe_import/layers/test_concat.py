"""Concat against loops."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.layer_check import check_layer, define, refusal, spread_values

pytestmark = pytest.mark.tf


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("channels_last", [False, True])
def test_concat(axis: int, channels_last: bool) -> None:
    second = [2, 3, 2, 2]
    second[axis] += 1
    check_layer(
        f'top: "n0" type: "Concat" concat_param {{ axis: {axis} }}',
        lambda *bottoms: [np.concatenate(bottoms, axis)],
        [spread_values(2, 3, 2, 2), spread_values(*second)],
        channels_last=channels_last,
    )


def test_concat_options() -> None:
    assert define('top: "n0" type: "Concat" concat_param { concat_dim: 0 }', (2, 3), (4, 3)).top_shapes == ((6, 3),)
    assert "allowed: one of both" in refusal('top: "n0" type: "Concat" concat_param { concat_dim: 0 axis: 0 }', (2, 3))
    assert refusal('top: "n0" type: "Concat"', (2, 3, 4), (2, 3, 5)).endswith(
        'bottom "x1" has shape (2, 3, 5); expected that of "x0", (2, 3, 4), except along axis 1'
    )
