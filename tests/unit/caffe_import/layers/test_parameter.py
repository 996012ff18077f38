"""Parameter against loops."""

from __future__ import annotations

import pytest

from tests.reference.layer_check import check_layer, spread_values

pytestmark = pytest.mark.tf


def test_parameter_is_its_blob() -> None:
    values = spread_values(2, 3)
    check_layer('top: "n0" type: "Parameter" parameter_param { shape { dim: 2 dim: 3 } }', lambda p: [p], [], [values])
