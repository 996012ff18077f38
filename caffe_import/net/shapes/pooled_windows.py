"""Positions of the windows of Pooling and SPP.

Source: BVLC Caffe, src/caffe/layers/pooling_layer.cpp, PoolingLayer::Reshape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from caffe_import.net.layer_registry import LayerRequest

Pair = tuple[int, int]
Method = Literal["MAX", "AVE", "STOCHASTIC"]


@dataclass(frozen=True)
class PoolingOptions:
    """Resolved options; pairs are (height, width) in pixels.

    Attributes:
        method: Value of a window.
        kernel: Window size; the whole image for global pooling.
        stride: Distance of two windows.
        pad: Cells before and after the image; AVE counts them as zeros in its divisor.
        is_global: One window over all.
        has_mask: A second top holds the place of each maximum inside its channel's plane, as float.
    """

    method: Method
    kernel: Pair
    stride: Pair
    pad: Pair
    is_global: bool
    has_mask: bool


def pooled_size(options: PoolingOptions, size: Pair, *, is_ceil: bool) -> Pair:
    """Return how many windows there are, (rows, columns).

    Caffe rounds up by default; its convolution and TensorFlow's VALID padding round down. If either axis is padded,
    Caffe then drops, on *both* axes, a last window starting past the input and the leading padding.

    Args:
        options: Kernel, stride and pad.
        size: Height and width of the bottom, in pixels.
        is_ceil: round_mode CEIL.

    Example:
        >>> plain = PoolingOptions("MAX", (3, 3), (2, 2), (0, 0), is_global=False, has_mask=False)
        >>> pooled_size(plain, (8, 8), is_ceil=True), pooled_size(plain, (8, 8), is_ceil=False)
        ((4, 4), (3, 3))
        >>> padded = PoolingOptions("MAX", (2, 2), (2, 2), (1, 1), is_global=False, has_mask=False)
        >>> pooled_size(padded, (5, 7), is_ceil=True)
        (3, 4)
    """
    rows, columns = (_pooled_extent(options, size, axis, is_ceil=is_ceil) for axis in (0, 1))
    return rows, columns


def _pooled_extent(options: PoolingOptions, size: Pair, axis: int, *, is_ceil: bool) -> int:
    stride, pad = options.stride[axis], options.pad[axis]
    room = size[axis] + 2 * pad - options.kernel[axis]
    pooled = (-(-room // stride) if is_ceil else room // stride) + 1
    if any(options.pad) and (pooled - 1) * stride >= size[axis] + pad:
        pooled -= 1
    return pooled


def require_windows_inside(request: LayerRequest, options: PoolingOptions, size: Pair, pooled: Pair) -> None:
    """Check that a window exists and no window is outside the image.

    Raises:
        NetError: There is none, or the last one has no pixel.
    """
    if min(pooled) < 1:
        finding = f"kernel {options.kernel}, stride {options.stride} leave no window in a bottom of {size[0]}x{size[1]}"
        raise request.refuse(finding)
    # Rounding up with a stride above the kernel can place the last window after the image: Caffe then reads other
    # memory (MAX) or divides by zero (AVE).
    if any((pooled[i] - 1) * options.stride[i] >= size[i] + options.pad[i] for i in (0, 1)):
        finding = (
            f"the last window starts after the bottom's {size[0]}x{size[1]} pixels and is empty (kernel "
            f"{options.kernel}, stride {options.stride}); use round_mode: FLOOR"
        )
        raise request.refuse(finding)
