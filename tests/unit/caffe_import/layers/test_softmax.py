"""Softmax against a loop over lines of values."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.layer_check import check_layer, in_both_orders, refusal, run_layer, spread_values
from tests.reference.slow_losses import slow_softmax

pytestmark = pytest.mark.tf


@pytest.mark.parametrize(
    ("shape", "axis", "channels_last"),
    in_both_orders(((3, 4), 1), ((2, 3, 2, 2), 1), ((2, 3, 2, 2), 2), ((2, 3, 2), -1), ((3, 2), 0)),
)
def test_values_and_gradients(shape: tuple[int, ...], axis: int, channels_last: bool) -> None:
    check_layer(
        f'top: "n0" type: "Softmax" softmax_param {{ axis: {axis} }}',
        lambda x: [slow_softmax(x, axis)],
        [spread_values(*shape, gap=0.2)],
        channels_last=channels_last,
    )


def test_large_values_do_not_overflow() -> None:
    run = run_layer('top: "n0" type: "Softmax"', [[[1000.0, 999.0, -1000.0]]])
    np.testing.assert_allclose(run.tops[0], [[1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1)), 0]], rtol=1e-6)


def test_missing_axis_is_refused() -> None:
    message = refusal('top: "n0" type: "Softmax" softmax_param { axis: 2 }', (2, 3))
    assert message == 'layer "layer" (Softmax): softmax_param.axis=2: the blob has 2 axes; allowed: -2 to 1'
