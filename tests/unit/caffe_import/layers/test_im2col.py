"""Im2col against a loop over every cell of every column."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.layer_check import check_layer, window_options
from tests.reference.slow_windows import slow_im2col

pytestmark = pytest.mark.tf


@pytest.mark.parametrize(
    ("kernel", "stride", "pad", "dilation"),
    [((3, 2), (1, 1), (0, 0), (1, 1)), ((2, 2), (2, 1), (1, 0), (1, 2))],
)
def test_values_and_gradients(
    kernel: tuple[int, int], stride: tuple[int, int], pad: tuple[int, int], dilation: tuple[int, int]
) -> None:
    check_layer(
        f'type: "Im2col" top: "n0" convolution_param {{ {window_options(kernel, stride, pad, dilation)} }}',
        lambda x: [slow_im2col(x, kernel=kernel, stride=stride, pad=pad, dilation=dilation)],
        [np.random.default_rng(1).normal(size=(2, 2, 4, 5))],
    )
