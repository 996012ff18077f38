"""EuclideanLoss. Source: BVLC Caffe, src/caffe/layers/euclidean_loss_layer.cpp."""

from __future__ import annotations

from math import prod

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.axes import shape_text
from caffe_import.net.shapes.loss_options import require_same_batch


@layer_type(
    "EuclideanLoss",
    bottoms=(2, 2),
    tops=(1, 1),
    traits=LayerTraits(
        arithmetic="float32", axis_order="caffe", gradient_keeps="bottoms and tops", reads_overwritten=False
    ),
    no_keras_form="a bundle's net has no losses and no accuracies",
)
def define_euclidean_loss(request: LayerRequest) -> LayerDefinition:
    """Top: the scalar sum of squared differences over 2N. Both bottoms take a gradient."""
    require_same_batch(request)
    first, second = request.bottom_shapes
    if prod(first[1:]) != prod(second[1:]):
        names = request.message.bottom
        finding = (
            f'bottoms "{names[0]}" {shape_text(first)} and "{names[1]}" {shape_text(second)} '
            "must have the same number of values per sample"
        )
        raise request.refuse(finding)
    return LayerDefinition(top_shapes=((),), default_loss_weight=1.0)
