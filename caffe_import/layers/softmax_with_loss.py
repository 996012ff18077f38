"""SoftmaxWithLoss: softmax and cross entropy against integer labels.

Source: BVLC Caffe, src/caffe/layers/softmax_loss_layer.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.layer_registry import ClassLabels, LayerDefinition, LayerRequest, layer_type
from caffe_import.net.shapes.axes import canonical_axis
from caffe_import.net.shapes.loss_options import (
    LossOptions,
    require_labels,
    require_same_batch,
    resolve_loss,
)


@dataclass(frozen=True)
class SoftmaxWithLossOptions:
    """``axis`` (canonical) holds the classes; ``loss`` says what counts and what divides."""

    axis: int
    loss: LossOptions


@layer_type("SoftmaxWithLoss", bottoms=(2, 2), tops=(1, 2), label_bottoms=(1,))
def define_softmax_with_loss(request: LayerRequest) -> LayerDefinition:
    """Tops: the scalar loss; optionally the probabilities, in the shape of the scores.

    Caffe 1.0 aborts on the second top although it declares it; here it works and takes no gradient.
    """
    require_same_batch(request)
    scores = request.bottom_shapes[0]
    axis = canonical_axis(request, request.message.softmax_param.axis, len(scores), option="softmax_param.axis")
    require_labels(request, axis)
    loss = resolve_loss(request, default="VALID")
    return LayerDefinition(
        top_shapes=((), scores)[: len(request.message.top)],
        options=SoftmaxWithLossOptions(axis, loss),
        default_loss_weight=1.0,
        labels=ClassLabels(scores[axis], loss.ignore_label),
    )
