"""Tile against loops."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.layer_check import check_layer, spread_values

pytestmark = pytest.mark.tf


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("channels_last", [False, True])
def test_tile(axis: int, channels_last: bool) -> None:
    check_layer(
        f'top: "n0" type: "Tile" tile_param {{ axis: {axis} tiles: 3 }}',
        lambda x: [np.concatenate([x, x, x], axis)],
        [spread_values(2, 3, 2, 2)],
        channels_last=channels_last,
    )
