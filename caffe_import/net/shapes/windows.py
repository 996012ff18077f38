"""Kernel, stride, pad and dilation of layers that slide a window: Convolution, Deconvolution, Im2col.

Source: BVLC Caffe, src/caffe/layers/base_conv_layer.cpp, BaseConvolutionLayer::LayerSetUp, and im2col_layer.cpp, with
the same fields and rules. Pooling has other rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from caffe_import.net.layer_registry import LayerRequest, Shape
from caffe_import.net.shapes.axes import canonical_axis, shape_text
from caffe_import.proto import caffe_pb2


@dataclass(frozen=True)
class Window:
    """A window per spatial axis; all four tuples have an entry for each axis after ``channel_axis``."""

    channel_axis: int
    kernel: Shape
    stride: Shape
    pad: Shape
    dilation: Shape

    @property
    def extent(self) -> Shape:
        """Pixels between the first and last tap of a dilated kernel."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    def slid_over(self, spatial: Shape) -> Shape:
        """Return how many positions the window takes on each axis; rounded down, may be < 1 if it does not fit."""
        sizes = zip(spatial, self.extent, self.stride, self.pad, strict=True)
        return tuple((size + 2 * p - extent) // s + 1 for size, extent, s, p in sizes)

    def spread_from(self, spatial: Shape) -> Shape:
        """Return the input size whose convolution has size ``spatial``: Deconvolution's output, in pixels."""
        sizes = zip(spatial, self.extent, self.stride, self.pad, strict=True)
        return tuple(s * (size - 1) + extent - 2 * p for size, extent, s, p in sizes)


def resolve_window(request: LayerRequest, param: caffe_pb2.ConvolutionParameter) -> Window:
    """Return the window that ``param`` asks for over the first bottom.

    Raises:
        NetError: A field is missing, contradicts another, has a wrong count or an impossible value.
    """
    shape = request.bottom_shapes[0]
    channel_axis = canonical_axis(request, param.axis, len(shape), option="convolution_param.axis")
    rank = len(shape) - channel_axis - 1
    window = Window(
        channel_axis=channel_axis,
        kernel=_per_axis(request, param, "kernel_size", "kernel", rank, default=None, least=1),
        stride=_per_axis(request, param, "stride", "stride", rank, default=1, least=1),
        pad=_per_axis(request, param, "pad", "pad", rank, default=0, least=0),
        dilation=_repeated(request, "dilation", param.dilation, rank, default=1, least=1),
    )
    return window


def require_window_fits(request: LayerRequest, window: Window, spatial: Shape) -> None:
    """Check that the window fits into every padded axis.

    Raises:
        NetError: It does not; the message names kernel, pad and the bottom's size.
    """
    if any(positions < 1 for positions in window.slid_over(spatial)):
        finding = (
            f"kernel {shape_text(window.kernel)}, dilation {shape_text(window.dilation)}, "
            f"does not fit into bottom size {shape_text(spatial)} with pad {shape_text(window.pad)}"
        )
        raise request.refuse(finding)


def window_flops(top_shape: Shape, weights: Shape) -> int:
    """Return two times the multiply-adds of a convolution whose top has ``top_shape`` (N..., out, spatial...).

    ``weights`` are (out, in/group, kernel...): every top value takes a multiply-add per weight of the channel.
    """
    return 2 * prod(top_shape) * prod(weights[1:])


def _per_axis(
    request: LayerRequest,
    param: caffe_pb2.ConvolutionParameter,
    repeated: str,
    stem: str,
    rank: int,
    *,
    default: int | None,
    least: int,
) -> Shape:
    """Resolve one of kernel, stride, pad: ``<stem>_h`` and ``<stem>_w``, or the repeated field."""
    height, width = f"{stem}_h", f"{stem}_w"
    values = list(getattr(param, repeated))
    if not (param.HasField(height) or param.HasField(width)):
        return _repeated(request, repeated, values, rank, default=default, least=least)
    if values:
        finding = f"has {repeated} and {height}/{width}; allowed: one of both forms"
        raise request.refuse(finding)
    if rank != 2:
        finding = f"{height}/{width} need two spatial axes, the bottom has {rank}; use {repeated}"
        raise request.refuse(finding)
    pair = (getattr(param, height), getattr(param, width))
    _require_least(request, f"{height}/{width}", pair, least)
    return pair


def _repeated(
    request: LayerRequest, option: str, values: Sequence[int], rank: int, *, default: int | None, least: int
) -> Shape:
    sizes = tuple(values)
    if not sizes:
        if default is None and rank > 0:
            finding = f"convolution_param.{option} is missing; allowed: one value or one for each of {rank} axes"
            raise request.refuse(finding)
        return (default or 0,) * rank
    if len(sizes) not in (1, rank):
        finding = f"{option} has {len(sizes)} values {shape_text(sizes)}; allowed: one or {rank}, as the spatial axes"
        raise request.refuse(finding)
    _require_least(request, option, sizes, least)
    return sizes * rank if len(sizes) == 1 else sizes


def _require_least(request: LayerRequest, option: str, values: Shape, least: int) -> None:
    if min(values) < least:
        finding = f"{option}={shape_text(values)}: every value must be at least {least}"
        raise request.refuse(finding)
