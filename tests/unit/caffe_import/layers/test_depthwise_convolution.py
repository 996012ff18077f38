"""DepthwiseConvolution against loops."""

from __future__ import annotations

import pytest

from tests.reference.layer_check import check_layer, refusal_of_type, spread_values
from tests.reference.slow_windows import slow_convolution

pytestmark = pytest.mark.tf


@pytest.mark.parametrize(
    ("type_name", "group", "stride", "dilation", "bias"),
    [
        ("DepthwiseConvolution", "group: 4", 1, 1, True),
        ("DepthwiseConvolution", "group: 4", 2, 2, False),
        ("ConvolutionDepthwise", "", 1, 2, True),
        ("ConvolutionDepthwise", "", 2, 1, False),
    ],
)
def test_depthwise_convolution(type_name: str, group: str, stride: int, dilation: int, bias: bool) -> None:
    text = (
        f'top: "n0" type: "{type_name}" convolution_param {{ num_output: 4 kernel_size: 3 pad: 1 {group} '
        f"stride: {stride} dilation: {dilation} bias_term: {str(bias).lower()} }}"
    )
    geometry = {"stride": (stride,) * 2, "pad": (1, 1), "dilation": (dilation,) * 2}
    check_layer(
        text,
        lambda x, w, *b: [slow_convolution(x, w, *b, **geometry, group=4)],
        [spread_values(1, 4, 5, 6)],
        [spread_values(4, 1, 3, 3, seed=2), *([spread_values(4, seed=3)] if bias else [])],
    )


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        (
            "num_output: 4 group: 2",
            "group=2, num_output=4, 4 channels in the bottom: expected one number; Convolution takes others",
        ),
        (
            "num_output: 8 group: 4",
            "group=4, num_output=8, 4 channels in the bottom: expected one number; Convolution takes others",
        ),
        ("num_output: 8", "group=8 must divide the 4 channels of the bottom and num_output=8"),
        ("group: 4", "convolution_param.num_output=0: must be at least 1"),
        ("", "convolution_param.num_output=0: must be at least 1"),
    ],
)
def test_depthwise_convolution_refuses_other_groups(options: str, finding: str) -> None:
    text = f"convolution_param {{ kernel_size: 3 {options} }}"
    assert refusal_of_type("DepthwiseConvolution", text, (1, 4, 5, 5)) == finding
