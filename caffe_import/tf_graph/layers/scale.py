"""How TensorFlow computes Scale."""

from __future__ import annotations

from caffe_import.layers.scale import ScaleOptions
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.operations.repeated_values import add_repeated, repeated_over


@emitter("Scale")
def emit_scale(request: EmitRequest) -> Emission:
    """Multiply by the first blob or the second bottom, then add the last blob if there is a bias."""
    options = request.layer.definition.options
    assert isinstance(options, ScaleOptions)
    bottom = request.bottoms[0]
    factors = request.bottoms[1].caffe if len(request.bottoms) == 2 else request.params[0]
    top = bottom.wrap(bottom.values * repeated_over(factors, options.axis, bottom))
    if options.has_bias:
        top = add_repeated(top, request.params[-1], options.axis)
    return Emission((top,))
