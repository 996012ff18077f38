"""LRN: local response normalisation. Source: BVLC Caffe, src/caffe/layers/lrn_layer.cpp."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import VALUE_BYTES, LayerTraits, per_top_value
from caffe_import.net.shapes.axes import require_rank
from caffe_import.proto import caffe_pb2

Region = Literal["ACROSS_CHANNELS", "WITHIN_CHANNEL"]


@dataclass(frozen=True)
class LRNOptions:
    """Resolved options: y = x / (k + alpha * mean_of_squares) ** beta.

    Attributes:
        region: Over which values the mean goes: neighbouring channels of one pixel, or the window around a pixel.
        local_size: Channels, or window edge in pixels; odd. Across channels the divisor is local_size everywhere,
            within a channel it is AVE pooling's (window cut at image plus padding).
        alpha: Weight of the mean.
        beta: Exponent.
        k: Added to the mean; within a channel always 1.
    """

    region: Region
    local_size: int
    alpha: float
    beta: float
    k: float


_TRAITS = LayerTraits(
    arithmetic="float32",
    axis_order="channels last",
    gradient_keeps="bottoms and tops",
    reads_overwritten=True,
    kept_bytes=per_top_value(2 * VALUE_BYTES),
    scratch_tops=3,
)


@layer_type(
    "LRN",
    bottoms=(1, 1),
    tops=(1, 1),
    traits=_TRAITS,
)
def define_lrn(request: LayerRequest) -> LayerDefinition:
    """Top: the bottom's shape (N, C, H, W)."""
    param = request.message.lrn_param
    require_rank(request, 0, 4, axes="4 axes (N, C, H, W)")
    if param.local_size % 2 == 0:
        finding = f"lrn_param.local_size={param.local_size}: must be odd"
        raise request.refuse(finding)
    is_across = param.norm_region == caffe_pb2.LRNParameter.ACROSS_CHANNELS
    notes: tuple[str, ...] = ()
    if not is_across and param.k != 1:
        notes = (f"k={param.k:g} has no effect with norm_region: WITHIN_CHANNEL; the constant is 1",)
    options = LRNOptions(
        region="ACROSS_CHANNELS" if is_across else "WITHIN_CHANNEL",
        local_size=param.local_size,
        alpha=param.alpha,
        beta=param.beta,
        k=param.k if is_across else 1.0,
    )
    return LayerDefinition(
        top_shapes=request.bottom_shapes,
        options=options,
        notes=notes,
        gradient_reads_bottoms=True,
        # Within channels Caffe's LRN is a net of further layers, and its product layer keeps both factors.
        traits=replace(_TRAITS, reads_overwritten=is_across),
    )
