"""MVN: subtract the mean and, by option, divide by the standard deviation plus eps, per channel or sample."""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.axes import shape_text


@dataclass(frozen=True)
class MVNOptions:
    """Resolved options of MVN.

    Attributes:
        normalize_variance: Divide by the standard deviation too.
        across_channels: One mean per sample instead of one per channel.
        eps: Added to the standard deviation (not to the variance).
    """

    normalize_variance: bool
    across_channels: bool
    eps: float


@layer_type(
    "MVN",
    bottoms=(1, 1),
    tops=(1, 1),
    in_place=True,
    traits=LayerTraits(arithmetic="float32", axis_order="caffe", gradient_keeps="tops", reads_overwritten=True),
)
def define_mvn(request: LayerRequest) -> LayerDefinition:
    """Top: (N, C, H, W), 1 for axes that the bottom lacks. Source: mvn_layer.cpp, MVNLayer::Reshape."""
    shape = request.bottom_shapes[0]
    if not 1 <= len(shape) <= 4:
        finding = f"bottom has shape {shape_text(shape)}; allowed: 1 to 4 axes"
        raise request.refuse(finding)
    param = request.message.mvn_param
    options = MVNOptions(param.normalize_variance, param.across_channels, param.eps)
    return LayerDefinition(top_shapes=((*shape, *(1,) * (4 - len(shape))),), options=options)
