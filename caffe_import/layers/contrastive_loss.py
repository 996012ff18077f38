"""ContrastiveLoss: pulls similar pairs together and pushes the others apart up to a margin."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits


@dataclass(frozen=True)
class ContrastiveLossOptions:
    """Resolved options of ContrastiveLoss.

    Attributes:
        margin: Distance beyond which a dissimilar pair costs nothing.
        legacy: max(margin - d^2, 0) instead of max(margin - d, 0)^2.
    """

    margin: float
    legacy: bool


@layer_type(
    "ContrastiveLoss",
    bottoms=(3, 3),
    tops=(1, 1),
    label_bottoms=(2,),
    traits=LayerTraits(
        arithmetic="float32", axis_order="caffe", gradient_keeps="bottoms and tops", reads_overwritten=False
    ),
    no_keras_form="a bundle's net has no losses and no accuracies",
)
def define_contrastive_loss(request: LayerRequest) -> LayerDefinition:
    """A scalar from two feature blobs (N, C[, 1, 1]) and similarity (N). Source: contrastive_loss_layer.cpp."""
    a, b, similar = request.bottom_shapes
    if a != b or len(a) < 2 or prod(a[2:]) != 1 or prod(similar) != a[0]:
        finding = f"bottom shapes {a}, {b}, {similar}: needs two of (N, C) or (N, C, 1, 1) and N similarities"
        raise request.refuse(finding)
    param = request.message.contrastive_loss_param
    options = ContrastiveLossOptions(param.margin, param.legacy_version)
    return LayerDefinition(top_shapes=((),), options=options, default_loss_weight=1.0)
