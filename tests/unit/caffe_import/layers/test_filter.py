"""Filter against loops."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.layer_check import refusal, run_layer, spread_values

pytestmark = pytest.mark.tf


@pytest.mark.parametrize("channels_last", [False, True])
def test_filter_keeps_selected_samples(channels_last: bool) -> None:
    x, y, selector = spread_values(4, 2, 1, 2), spread_values(4, 3), [0, 1, 0, 1]
    seeds = {"n0": np.ones((2, 2, 1, 2)), "n1": np.full((2, 3), 2.0)}
    run = run_layer(
        'top: "n0" top: "n1" type: "Filter"', [x, y, selector], channels_last=channels_last, top_gradients=seeds
    )
    np.testing.assert_array_equal(run.tops[0], x[[1, 3]].astype(np.float32))
    np.testing.assert_array_equal(run.tops[1], y[[1, 3]].astype(np.float32))
    np.testing.assert_array_equal(run.passes.blob_gradients["x1"], 2 * np.repeat([[0], [1], [0], [1]], 3, axis=1))


def test_filter_refusals() -> None:
    text = 'top: "n0" type: "Filter"'
    assert "needs one selector value per sample" in refusal(text, (4, 2), (3,))
    assert "needs as many" in refusal(text, (4, 2), (4, 2), (4,))
