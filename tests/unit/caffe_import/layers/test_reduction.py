"""Reduction against loops."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.layer_check import check_layer, spread_values

pytestmark = pytest.mark.tf


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize(
    ("operation", "channels_last"),
    [("SUM", False), ("ASUM", False), ("SUMSQ", False), ("MEAN", False), ("MEAN", True)],
)
def test_reduction(operation: str, axis: int, channels_last: bool) -> None:
    formulas = {
        "SUM": sum,
        "ASUM": lambda values: sum(abs(v) for v in values),
        "SUMSQ": lambda values: sum(v * v for v in values),
        "MEAN": lambda values: sum(values) / len(values),
    }

    def reference(x: np.ndarray) -> list[np.ndarray]:
        outer_shape = x.shape[: axis % x.ndim]
        rows = x.reshape(int(np.prod(outer_shape)), -1)
        return [np.array([-1.5 * formulas[operation](list(row)) for row in rows]).reshape(outer_shape)]

    check_layer(
        f'top: "n0" type: "Reduction" reduction_param {{ operation: {operation} axis: {axis} coeff: -1.5 }}',
        reference,
        [spread_values(2, 3, 2, 2)],
        channels_last=channels_last,
    )
