"""SigmoidCrossEntropyLoss: sigmoid and cross entropy against targets in [0, 1], value by value.

Source: BVLC Caffe, src/caffe/layers/sigmoid_cross_entropy_loss_layer.cpp.
"""

from __future__ import annotations

from math import prod

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.axes import shape_text
from caffe_import.net.shapes.loss_options import require_same_batch, resolve_loss


@layer_type(
    "SigmoidCrossEntropyLoss",
    bottoms=(2, 2),
    tops=(1, 2),
    label_bottoms=(1,),
    traits=LayerTraits(
        arithmetic="float32", axis_order="caffe", gradient_keeps="bottoms and tops", reads_overwritten=False
    ),
    no_keras_form="a bundle's net has no losses and no accuracies",
)
def define_sigmoid_cross_entropy_loss(request: LayerRequest) -> LayerDefinition:
    """Tops: the scalar loss; optionally the sigmoids. Divides by the batch size by default."""
    require_same_batch(request)
    scores, targets = request.bottom_shapes
    if prod(scores) != prod(targets):
        finding = (
            f'bottom "{request.message.bottom[1]}" has shape {shape_text(targets)}; expected as many values as '
            f'bottom "{request.message.bottom[0]}" {shape_text(scores)}'
        )
        raise request.refuse(finding)
    return LayerDefinition(
        top_shapes=((), scores)[: len(request.message.top)],
        options=resolve_loss(request, default="BATCH_SIZE"),
        default_loss_weight=1.0,
    )
