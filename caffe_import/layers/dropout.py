"""Dropout, scaled in training. Source: BVLC Caffe, src/caffe/layers/dropout_layer.cpp."""

from __future__ import annotations

from dataclasses import dataclass, replace

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits, per_top_value


@dataclass(frozen=True)
class DropoutOptions:
    """``ratio`` is the probability of dropping a value, 0 <= ratio < 1."""

    ratio: float


_TRAITS = LayerTraits(
    arithmetic="kept",
    axis_order="its bottoms'",
    gradient_keeps="nothing",
    reads_overwritten=False,
    kept_bytes=per_top_value(1),
    reuses_bottom=True,
)


@layer_type(
    "Dropout",
    bottoms=(1, 1),
    tops=(1, 1),
    in_place=True,
    traits=_TRAITS,
)
def define_dropout(request: LayerRequest) -> LayerDefinition:
    """Top: in TRAIN 0 or x / (1 - ratio), in TEST x itself."""
    ratio = request.message.dropout_param.dropout_ratio
    if not 0.0 <= ratio < 1.0:
        finding = f"dropout_param.dropout_ratio={ratio}: must be in [0, 1); it is the share that is dropped"
        raise request.refuse(finding)
    drops = request.phase == "TRAIN" and ratio > 0
    return LayerDefinition(
        top_shapes=request.bottom_shapes,
        options=DropoutOptions(ratio),
        traits=_TRAITS if drops else replace(_TRAITS, kept_bytes=per_top_value(0), is_identity=True),
    )
