"""Dropout, scaled in training. Source: BVLC Caffe, src/caffe/layers/dropout_layer.cpp."""

from __future__ import annotations

from dataclasses import dataclass

from caffe_import.net.layer_registry import LayerDefinition, LayerRequest, layer_type


@dataclass(frozen=True)
class DropoutOptions:
    """``ratio`` is the probability of dropping a value, 0 <= ratio < 1."""

    ratio: float


@layer_type("Dropout", bottoms=(1, 1), tops=(1, 1), in_place=True)
def define_dropout(request: LayerRequest) -> LayerDefinition:
    """Top: in TRAIN 0 or x / (1 - ratio), in TEST x itself."""
    ratio = request.message.dropout_param.dropout_ratio
    if not 0.0 <= ratio < 1.0:
        finding = f"dropout_param.dropout_ratio={ratio}: must be in [0, 1); it is the share that is dropped"
        raise request.refuse(finding)
    return LayerDefinition(top_shapes=request.bottom_shapes, options=DropoutOptions(ratio))
