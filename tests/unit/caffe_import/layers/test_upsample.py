"""Upsample against loops."""

from __future__ import annotations

import numpy as np
import pytest

from caffe_import.files.prototxt import parse_net
from caffe_import.net.net_spec import build_net_spec
from caffe_import.tf_graph.gradients import run_passes
from tests.reference.layer_check import assert_close, check_layer, refusal_of_type, run_layer, spread_values
from tests.reference.slow_fork_layers import slow_unpool, slow_upsample

pytestmark = pytest.mark.tf


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
    assert refusal_of_type("Upsample", f"upsample_param {{ {options} }}", (1, 2, 4, 4)) == finding


@pytest.mark.parametrize(
    ("options", "size"),
    [("scale: 3", (6, 9)), ("scale: 3 pad_out_w: true", (6, 8)), ("upsample_h: 5 upsample_w: 7", (5, 7))],
)
@pytest.mark.parametrize("channels_last", [False, True])
def test_upsample_with_a_mask_undoes_pooling(options: str, size: tuple[int, int], channels_last: bool) -> None:
    rng = np.random.default_rng(3)
    mask = np.array([[rng.permutation(size[0] * size[1])[:6] for _ in range(2)] for _ in range(2)], float)
    check_layer(
        f'top: "n0" type: "Upsample" upsample_param {{ {options} }}',
        lambda x, mask: [slow_unpool(x, mask, size=size)],
        [spread_values(2, 2, 2, 3), mask.reshape(2, 2, 2, 3)],
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


def test_upsample_needs_four_axes() -> None:
    finding = 'bottom "x0" has shape (2, 3, 4); expected 4 axes (N, C, H, W)'
    assert refusal_of_type("Upsample", "", (2, 3, 4)) == finding
