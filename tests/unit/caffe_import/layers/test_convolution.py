"""Convolution: shapes, refusals, values and gradients against loops over every output."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.layer_check import check_layer, define, refusal, window_options
from tests.reference.slow_windows import slow_convolution

pytestmark = pytest.mark.tf


def convolution(options: str) -> str:
    return f'type: "Convolution" top: "n0" convolution_param {{ {options} }}'


@pytest.mark.parametrize(
    ("options", "bottom", "top", "weights"),
    [
        ("num_output: 6 kernel_size: 3", (2, 4, 7, 9), (2, 6, 5, 7), (6, 4, 3, 3)),
        ("num_output: 6 kernel_size: 3 stride: 2 pad: 1", (2, 4, 8, 9), (2, 6, 4, 5), (6, 4, 3, 3)),
        (
            "num_output: 6 kernel_h: 1 kernel_w: 5 pad_w: 2 stride_h: 2 stride_w: 1",
            (1, 4, 8, 9),
            (1, 6, 4, 9),
            (6, 4, 1, 5),
        ),
        ("num_output: 6 kernel_size: 3 dilation: 2 group: 2", (2, 4, 7, 9), (2, 6, 3, 5), (6, 2, 3, 3)),
        (
            "num_output: 6 kernel_size: 2 kernel_size: 3 kernel_size: 1",
            (2, 4, 5, 6, 7),
            (2, 6, 4, 4, 7),
            (6, 4, 2, 3, 1),
        ),
        ("num_output: 6 kernel_size: 3 axis: -1", (2, 4, 5, 7), (2, 4, 5, 6), (6, 7)),
        ("num_output: 6 kernel_size: 3 axis: 2", (2, 4, 5, 7), (2, 4, 6, 5), (6, 5, 3)),
    ],
)
def test_shapes(options: str, bottom: tuple[int, ...], top: tuple[int, ...], weights: tuple[int, ...]) -> None:
    if "axis: -1" in options:
        options = options.replace("kernel_size: 3 ", "")
    definition = define(convolution(options), bottom)
    assert definition.top_shapes == (top,)
    assert [blob.shape for blob in definition.blobs] == [weights, (6,)]
    assert definition.flops == 2 * int(np.prod(top)) * int(np.prod(weights[1:]))


def test_bias_term_false_leaves_one_blob() -> None:
    assert len(define(convolution("num_output: 2 kernel_size: 1 bias_term: false"), (1, 3, 4, 4)).blobs) == 1


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        ("kernel_size: 3", "convolution_param.num_output=0: must be at least 1"),
        ("num_output: 2", "convolution_param.kernel_size is missing; allowed: one value or one for each of 2 axes"),
        (
            "num_output: 2 kernel_size: 3 kernel_h: 2 kernel_w: 2",
            "has kernel_size and kernel_h/kernel_w; allowed: one of both forms",
        ),
        (
            "num_output: 2 kernel_size: 3 kernel_size: 3 kernel_size: 3",
            "kernel_size has 3 values (3, 3, 3); allowed: one or 2, as the spatial axes",
        ),
        ("num_output: 2 kernel_size: 0", "kernel_size=(0): every value must be at least 1"),
        ("num_output: 2 kernel_h: 2", "kernel_h/kernel_w=(2, 0): every value must be at least 1"),
        ("num_output: 2 kernel_size: 3 stride: 0", "stride=(0): every value must be at least 1"),
        ("num_output: 2 kernel_size: 3 group: 2", "group=2 must divide the 3 channels of the bottom and num_output=2"),
        (
            "num_output: 2 kernel_size: 5 dilation: 2",
            "kernel (5, 5), dilation (2, 2), does not fit into bottom size (8, 8) with pad (0, 0)",
        ),
        ("num_output: 2 kernel_size: 3 axis: 4", "convolution_param.axis=4: the blob has 4 axes; allowed: -4 to 3"),
    ],
)
def test_wrong_options_are_refused(options: str, finding: str) -> None:
    assert refusal(convolution(options), (1, 3, 8, 8)) == f'layer "layer" (Convolution): {finding}'


def test_bottoms_of_different_shapes_are_refused() -> None:
    message = refusal('top: "n1" ' + convolution("num_output: 1 kernel_size: 1"), (1, 3, 4, 4), (1, 3, 4, 5))
    assert message.endswith('bottom "x1" has shape (1, 3, 4, 5); expected that of bottom "x0", (1, 3, 4, 4)')


CASES = [
    # spatial size, kernel, stride, pad, dilation, group, channels, outputs
    ((5, 6), (3, 3), (1, 1), (0, 0), (1, 1), 1, 2, 3),
    ((6, 7), (3, 2), (2, 3), (1, 0), (1, 1), 1, 2, 3),
    ((5, 5), (3, 3), (1, 1), (2, 1), (2, 1), 1, 2, 2),
    ((7, 8), (3, 2), (2, 2), (2, 2), (2, 3), 1, 2, 2),
    ((4, 4), (3, 3), (1, 1), (1, 1), (1, 1), 2, 4, 6),
    ((5, 5), (3, 3), (2, 2), (1, 1), (1, 1), 4, 4, 4),
    ((5, 5), (2, 2), (2, 1), (1, 1), (1, 1), 3, 3, 6),
    ((6, 6), (2, 2), (2, 2), (1, 1), (2, 2), 2, 2, 4),
    ((3, 3), (3, 3), (1, 1), (2, 2), (1, 1), 1, 1, 2),
    ((8,), (3,), (2,), (1,), (2,), 1, 2, 2),
    ((3, 3, 3), (2, 2, 3), (1, 2, 1), (1, 0, 1), (1, 1, 1), 1, 2, 2),
    ((5, 3, 4), (2, 2, 2), (1, 1, 2), (0, 1, 0), (2, 1, 1), 2, 2, 2),
    ((), (), (), (), (), 1, 3, 2),
    ((6,), (2,), (2,), (1,), (2,), 2, 4, 2),
    ((3, 2, 2, 3), (2, 2, 1, 2), (1, 1, 1, 1), (0, 0, 0, 1), (1, 1, 1, 1), 1, 1, 2),
]


@pytest.mark.parametrize(
    ("case", "channels_last"),
    [(case, False) for case in CASES] + [(case, True) for case in CASES[::2] if len(case[0]) == 2],
    ids=str,
)
def test_values_and_gradients(case: tuple[tuple[int, ...], ...], channels_last: bool) -> None:
    size, kernel, stride, pad, dilation, group, channels, outputs = case
    rng = np.random.default_rng(3)
    check_layer(
        convolution(f"num_output: {outputs} group: {group} {window_options(kernel, stride, pad, dilation)}"),
        lambda x, w, b: [slow_convolution(x, w, b, stride=stride, pad=pad, dilation=dilation, group=group)],
        [rng.normal(size=(1, channels, *size))],
        [rng.normal(size=(outputs, channels // group, *kernel)), rng.normal(size=outputs)],
        channels_last=channels_last,
    )


def test_two_bottoms_share_the_weights() -> None:
    rng = np.random.default_rng(4)

    def reference(a: np.ndarray, b: np.ndarray, w: np.ndarray) -> list[np.ndarray]:
        options = {"stride": (1, 1), "pad": (0, 0), "dilation": (1, 1)}
        return [slow_convolution(a, w, **options), slow_convolution(b, w, **options)]

    check_layer(
        'top: "n1" ' + convolution("num_output: 2 kernel_size: 2 bias_term: false"),
        reference,
        [rng.normal(size=(1, 2, 3, 3)), rng.normal(size=(1, 2, 3, 3))],
        [rng.normal(size=(2, 2, 2, 2))],
    )


def test_axis_joins_the_axes_before_the_channels() -> None:
    rng = np.random.default_rng(5)

    def reference(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
        top = slow_convolution(x.reshape(6, 2, 4), w, b, stride=(1,), pad=(0,), dilation=(1,))
        return [top.reshape(2, 3, *top.shape[1:])]

    check_layer(
        convolution("num_output: 2 kernel_size: 2 axis: 2"),
        reference,
        [rng.normal(size=(2, 3, 2, 4))],
        [rng.normal(size=(2, 2, 2)), rng.normal(size=2)],
    )
