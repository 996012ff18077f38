"""MultinomialLogisticLoss: -log of the true class's given probability, floored at 1e-20, divided by N."""

from __future__ import annotations

from math import prod

from caffe_import.net.layer_registry import ClassLabels, LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits


@layer_type(
    "MultinomialLogisticLoss",
    bottoms=(2, 2),
    tops=(1, 1),
    label_bottoms=(1,),
    traits=LayerTraits(
        arithmetic="float32", axis_order="caffe", gradient_keeps="bottoms and tops", reads_overwritten=False
    ),
    no_keras_form="a bundle's net has no losses and no accuracies",
)
def define_multinomial_logistic_loss(request: LayerRequest) -> LayerDefinition:
    """A scalar from probabilities (N, ...) and one label per sample. Source: multinomial_logistic_loss_layer.cpp."""
    scores, labels = request.bottom_shapes
    if not scores or not labels or prod(labels) != labels[0] or labels[0] != scores[0]:
        finding = f"probabilities have shape {scores}, labels {labels}: needs one label per sample"
        raise request.refuse(finding)
    return LayerDefinition(
        top_shapes=((),),
        default_loss_weight=1.0,
        gradient_reads_bottoms=True,
        labels=ClassLabels(prod(scores[1:])),
    )
