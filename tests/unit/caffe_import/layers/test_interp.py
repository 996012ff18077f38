"""Interp against loops."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.layer_check import check_layer, refusal_of_type, run_layer, spread_values
from tests.reference.slow_fork_layers import slow_interp

pytestmark = pytest.mark.tf


@pytest.mark.parametrize(
    ("options", "size", "pads", "channels_last"),
    [
        ("height: 7 width: 9", (7, 9), (0, 0), False),
        ("height: 7 width: 9", (7, 9), (0, 0), True),
        ("height: 3 width: 2", (3, 2), (0, 0), False),
        ("height: 1 width: 1", (1, 1), (0, 0), False),
        ("height: 4 width: 5", (4, 5), (0, 0), False),
        ("zoom_factor: 2", (7, 9), (0, 0), False),
        ("zoom_factor: 3 height: 1 width: 1", (10, 13), (0, 0), False),
        ("shrink_factor: 2", (2, 3), (0, 0), False),
        ("shrink_factor: 2 zoom_factor: 4", (5, 9), (0, 0), False),
        ("shrink_factor: 2 zoom_factor: 4 height: 6 width: 3", (6, 3), (0, 0), False),
        ("height: 5 width: 6 pad_beg: -1", (5, 6), (-1, 0), False),
        ("zoom_factor: 2 pad_beg: -1 pad_end: -1", (3, 5), (-1, -1), False),
        ("zoom_factor: 2 pad_beg: -1 pad_end: -1", (3, 5), (-1, -1), True),
    ],
)
def test_interp(options: str, size: tuple[int, int], pads: tuple[int, int], channels_last: bool) -> None:
    check_layer(
        f'top: "n0" type: "Interp" interp_param {{ {options} }}',
        lambda x: [slow_interp(x, height=size[0], width=size[1], pad_beg=pads[0], pad_end=pads[1])],
        [spread_values(1, 2, 4, 5)],
        channels_last=channels_last,
    )


def test_interp_of_one_pixel_repeats_it() -> None:
    run = run_layer('top: "n0" type: "Interp" interp_param { height: 3 width: 2 }', [[[[[2.5]]]]])
    np.testing.assert_array_equal(run.tops[0], np.full((1, 1, 3, 2), 2.5))


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        ("", "allowed: interp_param with zoom_factor, shrink_factor or both, or with height and width"),
        ("height: 3", "allowed: interp_param with zoom_factor, shrink_factor or both, or with height and width"),
        ("height: 3 width: 0", "interp_param height 3, width 0: every value must be at least 1"),
        ("zoom_factor: 0", "interp_param zoom_factor 0, shrink_factor 1: every value must be at least 1"),
        (
            "zoom_factor: 2 pad_beg: 1",
            "interp_param.pad_beg=1, pad_end=0: allowed: 0, or below 0 to cut the border",
        ),
        ("zoom_factor: 2 pad_end: -4", "pad_beg=0, pad_end=-4 leave nothing of a bottom of 4x5"),
    ],
)
def test_interp_refuses(options: str, finding: str) -> None:
    assert refusal_of_type("Interp", f"interp_param {{ {options} }}", (1, 2, 4, 5)) == finding


def test_interp_needs_four_axes() -> None:
    finding = 'bottom "x0" has shape (2, 3, 4); expected 4 axes (N, C, H, W)'
    assert refusal_of_type("Interp", "", (2, 3, 4)) == finding
