"""How TensorFlow computes Bias."""

from __future__ import annotations

from caffe_import.layers.bias import BiasOptions
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.operations.repeated_values import add_repeated


@emitter("Bias")
def emit_bias(request: EmitRequest) -> Emission:
    """Add the blob or the second bottom."""
    options = request.layer.definition.options
    assert isinstance(options, BiasOptions)
    values = request.bottoms[1].caffe if len(request.bottoms) == 2 else request.params[0]
    return Emission((add_repeated(request.bottoms[0], values, options.axis),))
