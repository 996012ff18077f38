"""Shared options of the classification losses: counted positions, and the divisor of the sum of losses.

Source: BVLC Caffe, src/caffe/layers/softmax_loss_layer.cpp, sigmoid_cross_entropy_loss_layer.cpp and
infogain_loss_layer.cpp, LayerSetUp and get_normalizer.

Source: BVLC Caffe, src/caffe/layers/softmax_loss_layer.cpp, sigmoid_cross_entropy_loss_layer.cpp and
infogain_loss_layer.cpp, LayerSetUp and get_normalizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal, cast

from caffe_import.net.layer_registry import LayerRequest
from caffe_import.net.shapes.axes import shape_text
from caffe_import.proto import caffe_pb2

Normalization = Literal["FULL", "VALID", "BATCH_SIZE", "NONE"]


@dataclass(frozen=True)
class LossOptions:
    """Resolved ``loss_param``.

    Attributes:
        ignore_label: Positions with this label give no loss and no gradient; None: all count.
        normalization: FULL: all positions; VALID: those not ignored; BATCH_SIZE: samples; NONE: 1.
            The divisor is never below 1.
    """

    ignore_label: int | None
    normalization: Normalization


def resolve_loss(request: LayerRequest, *, default: Normalization) -> LossOptions:
    """Return the layer's loss options.

    The deprecated ``normalize`` counts only where ``normalization`` is not given: true is VALID, false BATCH_SIZE.

    Args:
        request: The loss layer.
        default: Where neither field is given. SigmoidCrossEntropyLoss differs here from the field's own default.
    """
    param = request.message.loss_param
    normalization: Normalization = default
    if param.HasField("normalization"):
        normalization = cast(Normalization, caffe_pb2.LossParameter.NormalizationMode.Name(param.normalization))
    elif param.HasField("normalize"):
        normalization = "VALID" if param.normalize else "BATCH_SIZE"
    return LossOptions(param.ignore_label if param.HasField("ignore_label") else None, normalization)


def require_labels(request: LayerRequest, axis: int) -> None:
    """Check that each position outside the class axis has a label.

    Raises:
        NetError: The first axes differ, or the number of labels is another.
    """
    scores, labels = request.bottom_shapes[:2]
    expected = prod(scores) // scores[axis]
    names = request.message.bottom
    if prod(labels) != expected:
        finding = (
            f'bottom "{names[1]}" has shape {shape_text(labels)}, {prod(labels)} labels; expected {expected}: '
            f'one for each position of bottom "{names[0]}" {shape_text(scores)} outside axis {axis}'
        )
        raise request.refuse(finding)


def require_same_batch(request: LayerRequest) -> None:
    """Check that both bottoms hold equally many samples (LossLayer::Reshape).

    Raises:
        NetError: Their first axes differ.
    """
    first, second = request.bottom_shapes[:2]
    if first[:1] != second[:1]:
        names = request.message.bottom
        finding = (
            f'bottoms "{names[0]}" {shape_text(first)} and "{names[1]}" {shape_text(second)} '
            "must have the same first axis"
        )
        raise request.refuse(finding)
