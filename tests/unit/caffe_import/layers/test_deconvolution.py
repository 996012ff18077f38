"""Deconvolution: shapes, refusals, values and gradients against loops that spread every input."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from caffe_import.tf_graph.builder import build_forward
from tests.reference.layer_check import (
    FORWARD_BOUND,
    assert_close,
    check_layer,
    define,
    net_of,
    refusal,
    window_options,
)
from tests.reference.slow_windows import slow_deconvolution

pytestmark = pytest.mark.tf


def deconvolution(options: str) -> str:
    return f'type: "Deconvolution" top: "n0" convolution_param {{ {options} }}'


def test_shapes_and_swapped_weights() -> None:
    definition = define(deconvolution("num_output: 6 kernel_size: 4 stride: 2 pad: 1 group: 2"), (2, 4, 5, 7))
    assert definition.top_shapes == ((2, 6, 10, 14),)
    assert [blob.shape for blob in definition.blobs] == [(4, 3, 4, 4), (6,)]


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        (
            "num_output: 3 kernel_size: 2 group: 2",
            "group=2 must divide the 4 channels of the bottom and num_output=3",
        ),
        ("num_output: 2 kernel_size: 1 pad: 2", "pad (2, 2) leaves nothing of the top: its size would be (-1, -1)"),
        ("num_output: 2", "convolution_param.kernel_size is missing; allowed: one value or one for each of 2 axes"),
    ],
)
def test_wrong_options_are_refused(options: str, finding: str) -> None:
    assert refusal(deconvolution(options), (1, 4, 3, 3)) == f'layer "layer" (Deconvolution): {finding}'


CASES = [
    # spatial size, kernel, stride, pad, dilation, group, channels, outputs
    ((3, 4), (3, 3), (1, 1), (0, 0), (1, 1), 1, 2, 3),
    ((3, 4), (4, 3), (2, 3), (1, 1), (1, 1), 1, 2, 2),
    ((3, 4), (4, 4), (2, 2), (1, 1), (1, 1), 3, 3, 3),
    ((3, 3), (2, 2), (2, 1), (0, 1), (1, 1), 2, 2, 2),
    ((3, 3), (3, 3), (2, 2), (1, 1), (1, 1), 2, 4, 6),
    ((3, 3), (2, 2), (2, 1), (1, 0), (2, 3), 1, 2, 2),
    ((3, 3), (2, 2), (3, 3), (0, 0), (2, 2), 2, 4, 2),
    ((4,), (3,), (2,), (1,), (1,), 1, 2, 2),
    ((2, 3, 2), (2, 2, 3), (1, 2, 2), (0, 1, 1), (1, 1, 1), 1, 2, 2),
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
        deconvolution(f"num_output: {outputs} group: {group} {window_options(kernel, stride, pad, dilation)}"),
        lambda x, w, b: [slow_deconvolution(x, w, b, stride=stride, pad=pad, dilation=dilation, group=group)],
        [rng.normal(size=(2, channels, *size))],
        [rng.normal(size=(channels, outputs // group, *kernel)), rng.normal(size=outputs)],
        channels_last=channels_last,
    )


@pytest.mark.parametrize(
    ("kernel", "stride", "pad"),
    [((4, 3), (2, 1), (1, 0)), ((5, 3), (3, 2), (2, 1)), ((2, 2), (3, 3), (0, 0)), ((3, 20), (1, 9), (0, 5)),
     ((18, 18), (9, 9), (4, 5))],
)  # fmt: skip
def test_portable_operations_give_the_same(
    kernel: tuple[int, int], stride: tuple[int, int], pad: tuple[int, int]
) -> None:
    """The last case has too many phases for the depthwise convolution: 81."""
    options = (
        f"num_output: 3 group: 3 kernel_h: {kernel[0]} kernel_w: {kernel[1]} "
        f"stride_h: {stride[0]} stride_w: {stride[1]} pad_h: {pad[0]} pad_w: {pad[1]}"
    )
    rng = np.random.default_rng(3)
    x, w, b = rng.normal(size=(2, 3, 4, 3)), rng.normal(size=(3, 1, *kernel)), rng.normal(size=3)
    net = net_of(deconvolution(options), [x.shape])

    @tf.function(autograph=False)
    def forward() -> tf.Tensor:
        params = [tf.constant(blob, tf.float32) for blob in (w, b)]
        feeds = {"x0": tf.constant(x, tf.float32)}
        result = build_forward(net, is_portable=True).on_entries(params, {}, tf.constant([0, 0]), feeds)
        return result.blobs["n0"].caffe

    top = forward().numpy()
    operations = {operation.type for operation in forward.get_concrete_function().graph.get_operations()}
    assert "DepthwiseConv2dNativeBackpropInput" not in operations
    expected = slow_deconvolution(x, w, b, stride=stride, pad=pad, dilation=(1, 1), group=3)
    assert_close(top, expected, FORWARD_BOUND, "top n0")
