"""InfogainLoss: softmax and cross entropy with a matrix that weighs confusions.

Source: BVLC Caffe, src/caffe/layers/infogain_loss_layer.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt

from caffe_import.file_access.allowed_roots import check_named_path
from caffe_import.files.binary_file import read_message
from caffe_import.files.blob_proto import array_from_blob
from caffe_import.net.layer_registry import ClassLabels, LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.axes import canonical_axis
from caffe_import.net.shapes.loss_options import (
    LossOptions,
    require_labels,
    require_same_batch,
    resolve_loss,
)
from caffe_import.proto import caffe_pb2


@dataclass(frozen=True)
class InfogainLossOptions:
    """Resolved options.

    Attributes:
        axis: Axis (canonical) of the classes.
        loss: Counted values and the divisor.
        matrix: (true class, predicted class) as read from ``source``, read-only; None: it is the third bottom.
    """

    axis: int
    loss: LossOptions
    matrix: npt.NDArray[np.float32] | None = field(compare=False)


@layer_type(
    "InfogainLoss",
    bottoms=(2, 3),
    tops=(1, 2),
    label_bottoms=(1, 2),
    traits=LayerTraits(
        arithmetic="float32", axis_order="caffe", gradient_keeps="bottoms and tops", reads_overwritten=False
    ),
    no_keras_form="a bundle's net has no losses and no accuracies",
)
def define_infogain_loss(request: LayerRequest) -> LayerDefinition:
    """Tops: the scalar loss; optionally the probabilities, without a gradient.

    Unlike other layers of Caffe 1.0 it needs two ``loss_weight`` with two tops.
    """
    require_same_batch(request)
    param = request.message.infogain_loss_param
    scores = request.bottom_shapes[0]
    axis = canonical_axis(request, param.axis, len(scores), option="infogain_loss_param.axis")
    require_labels(request, axis)
    n_classes = scores[axis]
    matrix = None
    if len(request.bottom_shapes) == 2:
        if not param.source:
            finding = "has no third bottom and no infogain_loss_param.source; the matrix must come from one of them"
            raise request.refuse(finding)
        matrix = _read_matrix(request, param.source, n_classes)
    elif prod(request.bottom_shapes[2]) != n_classes**2:
        finding = (
            f'bottom "{request.message.bottom[2]}" has {prod(request.bottom_shapes[2])} values; '
            f"expected {n_classes} x {n_classes}"
        )
        raise request.refuse(finding)
    loss = resolve_loss(request, default="VALID")
    return LayerDefinition(
        top_shapes=((), scores)[: len(request.message.top)],
        options=InfogainLossOptions(axis, loss, matrix),
        default_loss_weight=1.0,
        labels=ClassLabels(n_classes, loss.ignore_label),
    )


def _read_matrix(request: LayerRequest, source: str, n_classes: int) -> npt.NDArray[np.float32]:
    check_named_path(source, named_by=f'layer "{request.message.name}": infogain_loss_param.source')
    message = read_message(Path(source), caffe_pb2.BlobProto(), file_kind="an infogain matrix (BlobProto)")
    values = array_from_blob(message, where=source)
    if values.size != n_classes**2:
        finding = f"{source} holds {values.size} values; expected {n_classes} x {n_classes}"
        raise request.refuse(finding)
    matrix = values.reshape(n_classes, n_classes)
    matrix.flags.writeable = False
    return matrix
