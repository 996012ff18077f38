"""Layers of Caffe's forks against loops: Permute, Normalize, Axpy, ReLU6, DepthwiseConvolution, Interp, ..."""

from __future__ import annotations

import numpy as np
import pytest

from caffe_import.files.prototxt import parse_net
from caffe_import.net.net_spec import build_net_spec
from caffe_import.tf_graph.gradients import run_passes
from tests.reference.layer_check import assert_close, check_layer, define, refusal, run_layer, spread_values
from tests.reference.slow_fork_layers import (
    slow_axpy,
    slow_interp,
    slow_normalize,
    slow_permute,
    slow_shuffle_channel,
    slow_unpool,
    slow_upsample,
)
from tests.reference.slow_windows import slow_convolution

pytestmark = pytest.mark.tf


def refused(type_name: str, options: str, *shapes: tuple[int, ...]) -> str:
    """Return what follows ``layer "layer" (Type): `` in the refusal."""
    return refusal(f'top: "n0" type: "{type_name}" {options}', *shapes).removeprefix(f'layer "layer" ({type_name}): ')


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (0, 3, 1, 2), (1, 0, 2, 3), (3, 2, 1, 0)])
@pytest.mark.parametrize("channels_last", [False, True])
def test_permute(order: tuple[int, ...], channels_last: bool) -> None:
    text = " ".join(f"order: {axis}" for axis in order)
    check_layer(
        f'top: "n0" type: "Permute" permute_param {{ {text} }}',
        lambda x: [slow_permute(x, order=order)],
        [spread_values(2, 3, 4, 5)],
        channels_last=channels_last,
    )


def test_permute_appends_the_axes_not_named() -> None:
    text = 'top: "n0" type: "Permute" permute_param { order: 2 }'
    check_layer(text, lambda x: [slow_permute(x, order=(2, 0, 1))], [spread_values(2, 3, 4)])
    assert define(text, (2, 3, 4)).top_shapes == ((4, 2, 3),)


@pytest.mark.parametrize("order", [[0, 0], [1, 3]])
def test_permute_refuses_axes_that_are_not_there(order: list[int]) -> None:
    text = " ".join(f"order: {axis}" for axis in order)
    finding = f"permute_param.order={order}: the bottom has 3 axes; allowed: each of 0 to 2 at most once"
    assert refused("Permute", f"permute_param {{ {text} }}", (2, 3, 4)) == finding


@pytest.mark.parametrize("across_spatial", [True, False])
@pytest.mark.parametrize("channel_shared", [True, False])
@pytest.mark.parametrize("shape", [(2, 3, 2, 4), (2, 5), (2, 3, 4)])
@pytest.mark.parametrize("channels_last", [False, True])
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
    assert refused("Normalize", "", (4,)) == "bottom has shape (4); allowed: 2 or more axes (N, C, ...)"


@pytest.mark.parametrize("factors", [(2, 3), (2, 3, 1, 1)])
@pytest.mark.parametrize("channels_last", [False, True])
def test_axpy(factors: tuple[int, ...], channels_last: bool) -> None:
    bottoms = [spread_values(*factors, seed=1), spread_values(2, 3, 2, 4, seed=2), spread_values(2, 3, 2, 4, seed=3)]
    check_layer('top: "n0" type: "Axpy"', lambda a, x, y: [slow_axpy(a, x, y)], bottoms, channels_last=channels_last)


@pytest.mark.parametrize("factors", [(2,), (3, 2), (2, 3, 1), (2, 3, 4, 4)])
def test_axpy_refuses_other_factors(factors: tuple[int, ...]) -> None:
    found = f"({', '.join(map(str, factors))})"
    assert refused("Axpy", "", factors, (2, 3, 4, 4), (2, 3, 4, 4)) == (
        f'bottom "x0" has shape {found}; expected one factor per sample and channel, (2, 3) or (2, 3, 1, 1)'
    )


def test_axpy_refuses_unequal_images() -> None:
    assert refused("Axpy", "", (2, 3), (2, 3, 4, 4), (2, 3, 4, 5)) == (
        'bottom "x2" has shape (2, 3, 4, 5); expected that of bottom "x1", (2, 3, 4, 4)'
    )


@pytest.mark.parametrize("channels_last", [False, True])
def test_relu6(channels_last: bool) -> None:
    check_layer(
        'top: "n0" type: "ReLU6"',
        lambda x: [np.vectorize(lambda v: min(max(v, 0.0), 6.0))(x)],
        [spread_values(2, 3, 2, 2, gap=0.9)],
        channels_last=channels_last,
    )


def test_relu6_has_no_slope_at_its_kinks() -> None:
    run = run_layer('top: "n0" type: "ReLU6"', [[0.0, 3.0, 6.0]], top_gradients={"n0": [1.0, 1.0, 1.0]})
    np.testing.assert_array_equal(run.passes.blob_gradients["x0"], [0, 1, 0])


def test_relu6_refuses_a_slope() -> None:
    assert refused("ReLU6", "relu_param { negative_slope: 0.5 }", (2, 3)) == (
        "relu_param.negative_slope=0.5: the forks differ in what it means here; allowed: 0"
    )


@pytest.mark.parametrize(("type_name", "group"), [("DepthwiseConvolution", "group: 4"), ("ConvolutionDepthwise", "")])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
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
    assert refused("DepthwiseConvolution", text, (1, 4, 5, 5)) == finding


@pytest.mark.parametrize(
    ("options", "size", "pads"),
    [
        ("height: 7 width: 9", (7, 9), (0, 0)),
        ("height: 3 width: 2", (3, 2), (0, 0)),
        ("height: 1 width: 1", (1, 1), (0, 0)),
        ("height: 4 width: 5", (4, 5), (0, 0)),
        ("zoom_factor: 2", (7, 9), (0, 0)),
        ("zoom_factor: 3 height: 1 width: 1", (10, 13), (0, 0)),
        ("shrink_factor: 2", (2, 3), (0, 0)),
        ("shrink_factor: 2 zoom_factor: 4", (5, 9), (0, 0)),
        ("shrink_factor: 2 zoom_factor: 4 height: 6 width: 3", (6, 3), (0, 0)),
        ("height: 5 width: 6 pad_beg: -1", (5, 6), (-1, 0)),
        ("zoom_factor: 2 pad_beg: -1 pad_end: -1", (3, 5), (-1, -1)),
    ],
)
@pytest.mark.parametrize("channels_last", [False, True])
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
    assert refused("Interp", f"interp_param {{ {options} }}", (1, 2, 4, 5)) == finding


@pytest.mark.parametrize("group", [1, 2, 3, 6])
@pytest.mark.parametrize("shape", [(2, 6, 2, 3), (2, 6), (2, 6, 3)])
@pytest.mark.parametrize("channels_last", [False, True])
def test_shuffle_channel(group: int, shape: tuple[int, ...], channels_last: bool) -> None:
    check_layer(
        f'top: "n0" type: "ShuffleChannel" shuffle_channel_param {{ group: {group} }}',
        lambda x: [slow_shuffle_channel(x, group=group)],
        [spread_values(*shape)],
        channels_last=channels_last,
    )


@pytest.mark.parametrize("group", [0, 4])
def test_shuffle_channel_refuses_groups_that_do_not_divide(group: int) -> None:
    assert refused("ShuffleChannel", f"shuffle_channel_param {{ group: {group} }}", (2, 6, 4, 4)) == (
        f"shuffle_channel_param.group={group} must divide the 6 channels of the bottom"
    )


def test_shuffle_channel_refuses_a_list() -> None:
    assert refused("ShuffleChannel", "", (4,)) == "bottom has shape (4); allowed: 2 or more axes (N, C, ...)"


@pytest.mark.parametrize(
    ("options", "scale"),
    [("", (2, 2)), ("scale: 1", (1, 1)), ("scale: 3", (3, 3)), ("scale_h: 2 scale_w: 5", (2, 5))],
)
@pytest.mark.parametrize("channels_last", [False, True])
def test_upsample(options: str, scale: tuple[int, int], channels_last: bool) -> None:
    check_layer(
        f'top: "n0" type: "Upsample" upsample_param {{ {options} }}',
        lambda x: [slow_upsample(x, scale_h=scale[0], scale_w=scale[1])],
        [spread_values(2, 2, 3, 4)],
        channels_last=channels_last,
    )


@pytest.mark.parametrize("scale", [3, 7, 11])
def test_upsample_of_long_rows_meets_every_pixel(scale: int) -> None:
    x = spread_values(1, 1, 1, 253)
    run = run_layer(f'top: "n0" type: "Upsample" upsample_param {{ scale: {scale} }}', [x])
    assert_close(run.tops[0], slow_upsample(x, scale_h=scale, scale_w=scale), 1e-6, "top")


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        ("scale: 0", "scale (0, 0): every value must be at least 1"),
        ("scale_h: 2", "allowed: either scale, or both scale_h and scale_w"),
        ("scale: 2 scale_h: 2 scale_w: 2", "allowed: either scale, or both scale_h and scale_w"),
        (
            "scale: 2 upsample_h: 7",
            "upsample_param.upsample_h belongs to SegNet's unpooling, which takes a second bottom, the mask of a "
            "Pooling layer; with one bottom allowed: scale, or scale_h and scale_w",
        ),
    ],
)
def test_upsample_refuses(options: str, finding: str) -> None:
    assert refused("Upsample", f"upsample_param {{ {options} }}", (1, 2, 4, 4)) == finding


@pytest.mark.parametrize(
    ("options", "size"),
    [("scale: 3", (6, 9)), ("scale: 3 pad_out_w: true", (6, 8)), ("upsample_h: 5 upsample_w: 7", (5, 7))],
)
@pytest.mark.parametrize("channels_last", [False, True])
def test_upsample_with_a_mask_undoes_pooling(options: str, size: tuple[int, int], channels_last: bool) -> None:
    rng = np.random.default_rng(3)
    places = np.array([[rng.permutation(size[0] * size[1])[:6] for _ in range(2)] for _ in range(2)], float)
    check_layer(
        f'top: "n0" type: "Upsample" upsample_param {{ {options} }}',
        lambda x, mask: [slow_unpool(x, mask, size=size)],
        [spread_values(2, 2, 2, 3), places.reshape(2, 2, 2, 3)],
        channels_last=channels_last,
        no_gradient=[1],
    )


def test_upsample_takes_the_mask_of_a_pooling() -> None:
    text = """
    layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 dim: 1 dim: 4 dim: 4 } } }
    layer { name: "p" type: "Pooling" bottom: "x" top: "p" top: "mask" pooling_param { kernel_size: 2 stride: 2 } }
    layer { name: "u" type: "Upsample" bottom: "p" bottom: "mask" top: "u" }
    """
    net = build_net_spec(parse_net("force_backward: true " + text), phase="TRAIN")
    x = spread_values(1, 1, 4, 4).astype(np.float32)
    passes = run_passes(net, np.zeros(0, np.float32), {"x": x}, layer_state={}, top_gradients={"u": 2 * x})
    is_largest = passes.blobs["u"] != 0
    assert is_largest.sum() == 4
    np.testing.assert_array_equal(passes.blobs["u"], np.where(is_largest, x, 0))
    np.testing.assert_array_equal(passes.blob_gradients["x"], np.where(is_largest, 2 * x, 0))


@pytest.mark.parametrize("type_name", ["Interp", "Upsample"])
def test_images_need_four_axes(type_name: str) -> None:
    assert refused(type_name, "", (2, 3, 4)) == 'bottom "x0" has shape (2, 3, 4); expected 4 axes (N, C, H, W)'
