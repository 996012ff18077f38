"""Layers with a matrix: InnerProduct and Embed."""

from __future__ import annotations

import keras
from keras import ops

from caffe_import.layers.embed import EmbedOptions
from caffe_import.layers.inner_product import InnerProductOptions
from deepspark_ops.export.formats.keras_layers.registry import FormRequest, keras_form, with_weights
from deepspark_ops.export.formats.keras_layers.value import Value


@keras_form("InnerProduct")
def inner_product(request: FormRequest) -> list[Value]:
    """Flatten from the axis on in Caffe's order, and add a Dense layer."""
    options = request.options(InnerProductOptions)
    if options.axis == 0:
        request.refuse_batch("axis: 0 joins the samples of a batch")
    weights = request.params[0] if options.is_transposed else request.params[0].T
    inputs = request.bottoms[0].caffe
    shape = (*request.shape()[1 : options.axis], weights.shape[0])
    if tuple(inputs.shape[1:]) != shape:
        inputs = keras.layers.Reshape(shape)(inputs)
    layer = keras.layers.Dense(options.n_outputs, use_bias=options.has_bias, name=request.name)
    return [Value(caffe=with_weights(layer, inputs, weights, *request.params[1:]))]


@keras_form("Embed")
def embed(request: FormRequest) -> list[Value]:
    """Look rows up; a bias is part of every row."""
    table = request.params[0]
    if request.options(EmbedOptions).has_bias:
        table = table + request.params[1]
    layer = keras.layers.Embedding(*table.shape, name=request.name)
    return [Value(caffe=with_weights(layer, ops.cast(request.bottoms[0].caffe, "int32"), table))]
