"""SPP: spatial pyramid pooling. Source: BVLC Caffe, src/caffe/layers/spp_layer.cpp.

He et al., "Spatial pyramid pooling in deep convolutional networks for visual recognition" (2014).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.axes import require_rank
from caffe_import.net.shapes.pooled_windows import (
    Method,
    Pair,
    PoolingOptions,
    pooled_size,
    require_windows_inside,
)
from caffe_import.proto import caffe_pb2


@dataclass(frozen=True)
class SPPOptions:
    """``levels``: pooling of each level and its number of windows, coarsest first."""

    levels: tuple[tuple[PoolingOptions, Pair], ...]


@layer_type(
    "SPP",
    bottoms=(1, 1),
    tops=(1, 1),
    traits=LayerTraits(
        arithmetic="float32", axis_order="channels last", gradient_keeps="bottoms and tops", reads_overwritten=False
    ),
)
def define_spp(request: LayerRequest) -> LayerDefinition:
    """Top: (N, values of all levels); with one level (N, C, 1, 1), as Caffe then leaves out the flattening."""
    param = request.message.spp_param
    shape = require_rank(request, 0, 4, axes="4 axes (N, C, H, W)")
    size = (shape[2], shape[3])
    if param.pyramid_height < 1:
        finding = f"spp_param.pyramid_height={param.pyramid_height}: must be at least 1"
        raise request.refuse(finding)
    method = cast(Method, caffe_pb2.SPPParameter.PoolMethod.Name(param.pool))
    levels = tuple(_level(request, 2**level, method, size) for level in range(param.pyramid_height))
    if len(levels) == 1:
        pooled = levels[0][1]
        return LayerDefinition(top_shapes=((shape[0], shape[1], *pooled),), options=SPPOptions(levels))
    n_values = shape[1] * sum(rows * columns for _, (rows, columns) in levels)
    return LayerDefinition(top_shapes=((shape[0], n_values),), options=SPPOptions(levels))


def _level(request: LayerRequest, n_bins: int, method: Method, size: Pair) -> tuple[PoolingOptions, Pair]:
    """Return the pooling with ``n_bins`` windows along each axis (SPPLayer::GetPoolingParam)."""
    kernel = (-(-size[0] // n_bins), -(-size[1] // n_bins))
    # The padding that makes up for rounding up, the larger half in front.
    pad = ((kernel[0] * n_bins - size[0] + 1) // 2, (kernel[1] * n_bins - size[1] + 1) // 2)
    if pad[0] >= kernel[0] or pad[1] >= kernel[1] or (method == "STOCHASTIC" and pad != (0, 0)):
        finding = (
            f"{n_bins} x {n_bins} {method} windows of {kernel[0]}x{kernel[1]} pixels on a bottom of "
            f"{size[0]}x{size[1]} need pad {pad}, which Pooling refuses; use a smaller pyramid_height"
        )
        raise request.refuse(finding)
    options = PoolingOptions(method, kernel, kernel, pad, is_global=False, has_mask=False)
    pooled = pooled_size(options, size, is_ceil=True)
    require_windows_inside(request, options, size, pooled)
    return options, pooled
