"""HingeLoss: one-versus-all hinge over the classes, linear or squared, divided by N."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from caffe_import.net.layer_registry import ClassLabels, LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.proto import caffe_pb2


@dataclass(frozen=True)
class HingeLossOptions:
    """Resolved options of HingeLoss.

    Attributes:
        squared: norm L2: the sum of squared hinges.
    """

    squared: bool


@layer_type(
    "HingeLoss",
    bottoms=(2, 2),
    tops=(1, 1),
    label_bottoms=(1,),
    traits=LayerTraits(
        arithmetic="float32", axis_order="caffe", gradient_keeps="bottoms and tops", reads_overwritten=False
    ),
    no_keras_form="a bundle's net has no losses and no accuracies",
)
def define_hinge_loss(request: LayerRequest) -> LayerDefinition:
    """A scalar from scores (N, ...) and one label per sample. Source: hinge_loss_layer.cpp."""
    scores, labels = request.bottom_shapes
    if not scores or not labels or scores[0] != prod(labels):
        finding = f"scores have shape {scores}, labels {labels}: needs one label per sample"
        raise request.refuse(finding)
    squared = request.message.hinge_loss_param.norm == caffe_pb2.HingeLossParameter.L2
    return LayerDefinition(
        top_shapes=((),),
        options=HingeLossOptions(squared),
        default_loss_weight=1.0,
        labels=ClassLabels(prod(scores[1:])),
    )
