"""SoftmaxWithLoss: softmax and cross entropy against integer labels.

Source: BVLC Caffe, src/caffe/layers/softmax_loss_layer.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from caffe_import.net.layer_registry import ClassLabels, LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import VALUE_BYTES, LayerTraits, Shape, n_values
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


def _score_bytes(bottoms: Sequence[Shape], _tops: Sequence[Shape]) -> int:
    """Return the bytes of the probabilities, which the gradient reads."""
    return VALUE_BYTES * n_values(bottoms[:1])


@layer_type(
    "SoftmaxWithLoss",
    bottoms=(2, 2),
    tops=(1, 2),
    label_bottoms=(1,),
    traits=LayerTraits(
        arithmetic="float32",
        axis_order="caffe",
        gradient_keeps="nothing",
        reads_overwritten=False,
        kept_bytes=_score_bytes,
    ),
    no_keras_form="a bundle's net has no losses and no accuracies",
)
def define_softmax_with_loss(request: LayerRequest) -> LayerDefinition:
    """Tops: the scalar loss; optionally the probabilities, in the shape of the scores.

    Caffe 1.0 declares the second top but aborts on a net with two tops; here the second top works and takes no
    gradient.
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
