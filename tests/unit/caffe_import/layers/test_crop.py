"""Crop against loops."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.layer_check import check_layer, refusal, spread_values

pytestmark = pytest.mark.tf


@pytest.mark.parametrize(
    ("options", "cut"),
    [
        ("", (slice(None), slice(None), slice(0, 2), slice(0, 3))),
        ("offset: 1", (slice(None), slice(None), slice(1, 3), slice(1, 4))),
        ("offset: 1 offset: 2", (slice(None), slice(None), slice(1, 3), slice(2, 5))),
        ("axis: 1 offset: 1", (slice(None), slice(1, 2), slice(1, 3), slice(1, 4))),
    ],
)
@pytest.mark.parametrize("channels_last", [False, True])
def test_crop(options: str, cut: tuple[slice, ...], channels_last: bool) -> None:
    check_layer(
        f'top: "n0" type: "Crop" crop_param {{ {options} }}',
        lambda x, _: [x[cut]],
        [spread_values(2, 3, 4, 5), np.zeros((2, 1, 2, 3) if "axis" in options else (2, 3, 2, 3))],
        no_gradient=(1,),
        channels_last=channels_last,
    )


def test_crop_refusals() -> None:
    assert "exceeds the bottom's 4" in refusal(
        'top: "n0" type: "Crop" crop_param { offset: 3 }', (1, 1, 4, 4), (1, 1, 2, 2)
    )
    text = 'top: "n0" type: "Crop" crop_param { offset: 1 offset: 1 offset: 1 }'
    assert "0, 1 or 2 offsets" in refusal(text, (1, 1, 4, 4), (1, 1, 2, 2))
