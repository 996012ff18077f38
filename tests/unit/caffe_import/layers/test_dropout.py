"""Dropout: shares, scaling, seeds, and that the gradient knows the same mask."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.layer_check import check_layer, refusal, run_layer

pytestmark = pytest.mark.tf

SHAPE = (10, 7, 30, 31)


def dropout(ratio: float) -> str:
    return f'top: "n0" type: "Dropout" dropout_param {{ dropout_ratio: {ratio} }}'


@pytest.mark.parametrize("ratio", [0.5, 0.3, 0.9, 0.25])
@pytest.mark.parametrize("channels_last", [False, True])
def test_share_scale_and_mask(ratio: float, channels_last: bool) -> None:
    x = np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)
    gradient = np.random.default_rng(2).normal(size=SHAPE).astype(np.float32)
    run = run_layer(dropout(ratio), [x], top_gradients={"n0": gradient}, channels_last=channels_last, seed=3)
    is_kept = run.tops[0] != 0
    np.testing.assert_allclose(run.tops[0], np.where(is_kept, x / (1 - ratio), 0), rtol=1e-5)
    np.testing.assert_allclose(run.passes.blob_gradients["x0"], np.where(is_kept, gradient / (1 - ratio), 0), rtol=1e-5)
    assert is_kept.mean() == pytest.approx(1 - ratio, abs=5 * np.sqrt(ratio * (1 - ratio) / x.size))
    # Neighbours are independent: both kept as often as chance says.
    both = (is_kept[..., 1:] & is_kept[..., :-1]).mean()
    assert both == pytest.approx((1 - ratio) ** 2, abs=0.01)


def test_seed_decides() -> None:
    x = np.ones(SHAPE)
    first, repeated, other = (run_layer(dropout(0.5), [x], seed=seed).tops[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, repeated)
    assert (first != other).mean() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(("ratio", "phase"), [(0.5, "TEST"), (0.0, "TRAIN")])
def test_identity(ratio: float, phase: str) -> None:
    check_layer(dropout(ratio), lambda x: [x], [np.random.default_rng(1).normal(size=(2, 3))], phase=phase)


@pytest.mark.parametrize("ratio", [1.0, -0.1])
def test_impossible_ratios_are_refused(ratio: float) -> None:
    assert "must be in [0, 1); it is the share that is dropped" in refusal(dropout(ratio), (2, 3))
