"""How TensorFlow computes InnerProduct: one matrix product."""

from __future__ import annotations

import tensorflow as tf

from caffe_import.layers.inner_product import InnerProductOptions
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import Emission, EmitRequest, emitter
from caffe_import.tf_graph.fixed_weights import in_graph
from caffe_import.tf_graph.operations.bias import add_bias
from caffe_import.tf_graph.operations.weight_product import times_weights


@emitter("InnerProduct", orders_weights=True)
def emit_inner_product(request: EmitRequest) -> Emission:
    """Flatten from the axis on in Caffe's order, multiply, add the bias."""
    options = request.layer.definition.options
    assert isinstance(options, InnerProductOptions)
    weights = request.params[0]
    n_inputs = weights.shape[0] if options.is_transposed else weights.shape[1]
    inputs = request.bottoms[0].caffe
    # A reshape that changes nothing would still hide the product from TensorFlow's fusion with bias and ReLU.
    if inputs.shape.rank != 2 or inputs.shape[1] != n_inputs:
        inputs = tf.reshape(inputs, (-1, n_inputs))
    outputs = tf.matmul(inputs, in_graph(weights)) if options.is_transposed else times_weights(inputs, weights)
    if options.has_bias:
        outputs = add_bias(outputs, in_graph(request.params[1]))
    top_shape = request.layer.definition.top_shapes[0]
    return Emission((Blob.from_caffe(outputs if len(top_shape) == 2 else tf.reshape(outputs, (-1, *top_shape[1:]))),))
