"""ContrastiveLoss against loops."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.layer_check import run_layer, spread_values
from tests.reference.slow_losses import slow_contrastive_loss

pytestmark = pytest.mark.tf


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("shape", [(6, 3), (6, 3, 1, 1)])
def test_contrastive(legacy: bool, shape: tuple[int, ...]) -> None:
    margin = 1.5
    options = f"margin: {margin} legacy_version: {str(legacy).lower()}"
    text = f'top: "loss" type: "ContrastiveLoss" contrastive_loss_param {{ {options} }}'
    similar = [1, 0, 1, 0, 0, 0]
    a, b = spread_values(*shape, seed=1, gap=0.09), spread_values(*shape, seed=2, gap=0.13)
    run = run_layer(text, [a, b, similar])
    np.testing.assert_allclose(
        run.tops[0], slow_contrastive_loss(a, b, similar, margin=margin, legacy=legacy), rtol=1e-5
    )
    # Backward_cpu by hand; not a difference quotient because Caffe adds 1e-4 to the distance.
    expected = np.zeros((6, 3))
    for n in range(6):
        difference = (a - b).reshape(6, 3)[n]
        squared = (difference**2).sum()
        if similar[n]:
            expected[n] = difference / 6
        elif legacy:
            expected[n] = -difference / 6 if margin - squared > 0 else 0
        elif margin - np.sqrt(squared) > 0:
            expected[n] = -(margin - np.sqrt(squared)) / (np.sqrt(squared) + 1e-4) * difference / 6
    assert np.abs(expected).sum(axis=1).min() == 0  # one pair lies beyond the margin
    np.testing.assert_allclose(run.passes.blob_gradients["x0"].reshape(6, 3), expected, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(run.passes.blob_gradients["x1"].reshape(6, 3), -expected, rtol=1e-4, atol=1e-7)


def test_contrastive_of_equal_vectors_is_finite() -> None:
    run = run_layer('top: "loss" type: "ContrastiveLoss"', [np.ones((1, 2)), np.ones((1, 2)), [0]])
    assert np.isfinite(run.passes.blob_gradients["x0"]).all()
