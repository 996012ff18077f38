"""LRN of both regions against loops over neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.layer_check import check_layer, define, refusal
from tests.reference.slow_windows import slow_lrn_across, slow_lrn_within

pytestmark = pytest.mark.tf


def lrn(options: str) -> str:
    return f'type: "LRN" top: "n0" lrn_param {{ {options} }}'


@pytest.mark.parametrize(
    ("shape", "n", "alpha", "beta", "k"),
    [
        ((2, 6, 2, 3), 5, 0.5, 0.75, 1.0),
        ((1, 4, 2, 2), 3, 0.2, 0.5, 2.0),
        ((1, 3, 2, 2), 7, 1.0, 0.75, 1.5),  # more terms than channels
        ((1, 40, 1, 2), 1, 0.3, 0.75, 1.0),
        ((1, 128, 1, 2), 5, 0.5, 0.75, 1.0),  # beyond the band matrix: blocks of 16 channels
        ((2, 115, 2, 1), 3, 0.3, 1.25, 1.0),  # no whole number of blocks
        ((1, 120, 1, 1), 35, 0.3, 0.75, 1.0),  # a region reaches over a block of 16
        ((1, 128, 1, 1), 1, 0.3, 0.75, 1.0),
    ],
)
@pytest.mark.parametrize("channels_last", [False, True])
def test_across_channels(
    shape: tuple[int, ...], n: int, alpha: float, beta: float, k: float, channels_last: bool
) -> None:
    check_layer(
        lrn(f"local_size: {n} alpha: {alpha} beta: {beta} k: {k}"),
        lambda x: [slow_lrn_across(x, n=n, alpha=alpha, beta=beta, k=k)],
        [np.random.default_rng(2).normal(size=shape)],
        channels_last=channels_last,
    )


@pytest.mark.parametrize(("n", "beta"), [(3, 0.75), (5, 0.6)])
def test_within_channel(n: int, beta: float) -> None:
    check_layer(
        lrn(f"norm_region: WITHIN_CHANNEL local_size: {n} alpha: 0.5 beta: {beta} k: 7"),
        lambda x: [slow_lrn_within(x, n=n, alpha=0.5, beta=beta)],
        [np.random.default_rng(2).normal(size=(2, 2, 5, 4))],
    )


def test_even_sizes_are_refused_and_an_ignored_k_is_noted() -> None:
    assert refusal(lrn("local_size: 4"), (1, 3, 4, 4)).endswith("lrn_param.local_size=4: must be odd")
    (note,) = define(lrn("norm_region: WITHIN_CHANNEL k: 2"), (1, 3, 4, 4)).notes
    assert note == "k=2 has no effect with norm_region: WITHIN_CHANNEL; the constant is 1"
    assert define(lrn("k: 2"), (1, 3, 4, 4)).notes == ()
