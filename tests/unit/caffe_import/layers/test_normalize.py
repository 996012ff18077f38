"""Normalize against loops."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.layer_check import check_layer, define, in_both_orders, refusal_of_type, run_layer, spread_values
from tests.reference.slow_fork_layers import slow_normalize

pytestmark = pytest.mark.tf


@pytest.mark.parametrize("across_spatial", [True, False])
@pytest.mark.parametrize("channel_shared", [True, False])
@pytest.mark.parametrize(("shape", "channels_last"), in_both_orders(((2, 3, 2, 4),), ((2, 5),), ((2, 3, 4),)))
def test_normalize(across_spatial: bool, channel_shared: bool, shape: tuple[int, ...], channels_last: bool) -> None:
    options = f"across_spatial: {across_spatial} channel_shared: {channel_shared} eps: 0.5".lower()
    check_layer(
        f'top: "n0" type: "Normalize" norm_param {{ {options} }}',
        lambda x, scale: [slow_normalize(x, scale, across_spatial=across_spatial, eps=0.5)],
        [spread_values(*shape)],
        [1.5 if channel_shared else np.linspace(-1, 2, shape[1])],
        channels_last=channels_last,
    )


def test_normalize_defaults_are_those_of_ssd() -> None:
    blob = define('top: "n0" type: "Normalize"', (2, 3, 4, 4)).blobs[0]
    assert (blob.shape, blob.filler.type, blob.filler.value) == ((), "constant", 1)
    filled = 'norm_param { channel_shared: false scale_filler { type: "constant" value: 20 } }'
    blob = define(f'top: "n0" type: "Normalize" {filled}', (2, 3, 4, 4)).blobs[0]
    assert (blob.shape, blob.filler.value) == ((3,), 20)
    run = run_layer('top: "n0" type: "Normalize"', [spread_values(2, 3, 2, 2)], [1.0])
    np.testing.assert_allclose((run.tops[0] ** 2).sum(axis=(1, 2, 3)), 1, rtol=1e-5)  # float32, 12 terms


def test_normalize_of_zeros_is_zero_with_a_finite_gradient() -> None:
    run = run_layer(
        'top: "n0" type: "Normalize" norm_param { across_spatial: false }',
        [np.zeros((1, 2, 2, 2))],
        [1.0],
        top_gradients={"n0": np.ones((1, 2, 2, 2))},
    )
    assert not run.tops[0].any()
    gradient = run.passes.blob_gradients["x0"]
    assert gradient is not None
    np.testing.assert_allclose(gradient, 1e5, rtol=1e-5)  # 1 / sqrt(eps), eps 1e-10


def test_normalize_refuses_a_list() -> None:
    assert refusal_of_type("Normalize", "", (4,)) == "bottom has shape (4); allowed: 2 or more axes (N, C, ...)"
