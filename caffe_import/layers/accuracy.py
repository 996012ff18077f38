"""Accuracy: share of positions whose label is among the top_k scores.

Source: BVLC Caffe, src/caffe/layers/accuracy_layer.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.layer_registry import ClassLabels, LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.axes import canonical_axis
from caffe_import.net.shapes.loss_options import require_labels


@dataclass(frozen=True)
class AccuracyOptions:
    """Resolved options.

    Attributes:
        axis: Axis (canonical) of the classes.
        top_k: A label counts as found if fewer than top_k other classes score at least as high.
        ignore_label: Positions with this label do not count; None: all do.
    """

    axis: int
    top_k: int
    ignore_label: int | None


@layer_type(
    "Accuracy",
    bottoms=(2, 2),
    tops=(1, 2),
    differentiable_bottoms=False,
    label_bottoms=(1,),
    traits=LayerTraits(arithmetic="float32", axis_order="caffe", gradient_keeps="nothing", reads_overwritten=False),
    no_keras_form="a bundle's net has no losses and no accuracies",
)
def define_accuracy(request: LayerRequest) -> LayerDefinition:
    """Tops: the scalar share; optionally the share for each class, (classes,), 0 for a class without samples."""
    param = request.message.accuracy_param
    scores = request.bottom_shapes[0]
    axis = canonical_axis(request, param.axis, len(scores), option="accuracy_param.axis")
    require_labels(request, axis)
    if not 1 <= param.top_k <= scores[axis]:
        finding = f"accuracy_param.top_k={param.top_k}: must be between 1 and the {scores[axis]} classes"
        raise request.refuse(finding)
    ignore_label = param.ignore_label if param.HasField("ignore_label") else None
    return LayerDefinition(
        top_shapes=((), (scores[axis],))[: len(request.message.top)],
        options=AccuracyOptions(axis, param.top_k, ignore_label),
        notes=("a tie with another class counts against the true class",),
        labels=ClassLabels(scores[axis], ignore_label),
    )
