"""Split against loops."""

from __future__ import annotations

import pytest

from tests.reference.layer_check import check_layer, spread_values

pytestmark = pytest.mark.tf


def test_split_adds_the_readers_gradients() -> None:
    check_layer('top: "n0" top: "n1" top: "n2" type: "Split"', lambda x: [x, x, x], [spread_values(2, 3)])
