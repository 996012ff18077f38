"""MultinomialLogisticLoss against loops."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.layer_check import check_layer, run_layer
from tests.reference.slow_losses import slow_multinomial_loss

pytestmark = pytest.mark.tf


def test_multinomial() -> None:
    probabilities = np.random.default_rng(4).uniform(0.1, 0.9, (3, 4))
    check_layer(
        'top: "loss" type: "MultinomialLogisticLoss"',
        lambda p, y: [slow_multinomial_loss(p, y)],
        [probabilities, [0, 3, 2]],
        no_gradient=(1,),
    )


def test_multinomial_floors_at_1e_20_in_value_and_gradient() -> None:
    run = run_layer('top: "loss" type: "MultinomialLogisticLoss"', [[[0.0, 1.0]], [0]])
    np.testing.assert_allclose(run.tops[0], -np.log(1e-20), rtol=1e-6)
    np.testing.assert_allclose(run.passes.blob_gradients["x0"], [[-1e20, 0]], rtol=1e-6)
