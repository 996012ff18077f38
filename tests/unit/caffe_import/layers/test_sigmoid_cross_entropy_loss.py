"""SigmoidCrossEntropyLoss against loops."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.layer_check import check_layer, run_layer, spread_values
from tests.reference.slow_losses import slow_sigmoid_cross_entropy

pytestmark = pytest.mark.tf


@pytest.mark.parametrize("mode", [None, "FULL", "VALID", "BATCH_SIZE", "NONE"])
@pytest.mark.parametrize("ignore", [None, 1])
def test_sigmoid_cross_entropy(mode: str | None, ignore: int | None) -> None:
    options = ("" if mode is None else f"normalization: {mode} ") + (
        "" if ignore is None else f"ignore_label: {ignore}"
    )
    targets = [[0, 1, 1], [0.0, 0, 1]] if ignore is not None else [[0, 1, 0.3], [0.9, 0, 1]]
    check_layer(
        f'top: "loss" type: "SigmoidCrossEntropyLoss" loss_param {{ {options} }}',
        lambda x, t: [slow_sigmoid_cross_entropy(x, t, ignore=ignore, mode=mode or "BATCH_SIZE")],
        [spread_values(2, 3, gap=0.5), targets],
        no_gradient=(1,),
    )


def test_sigmoid_cross_entropy_of_large_scores_is_finite() -> None:
    run = run_layer('top: "loss" type: "SigmoidCrossEntropyLoss"', [[[300.0, -300.0]], [[0.0, 1.0]]])
    np.testing.assert_allclose(run.tops[0], 600, rtol=1e-6)
