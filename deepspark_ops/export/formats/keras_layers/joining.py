"""Layers of several bottoms or tops: Eltwise, Concat, Slice, Axpy."""

from __future__ import annotations

import keras
from keras import ops

from caffe_import.layers.concat import ConcatOptions
from caffe_import.layers.eltwise import EltwiseOptions
from caffe_import.layers.slice import SliceOptions
from deepspark_ops.export.formats.keras_layers.registry import FormRequest, keras_form
from deepspark_ops.export.formats.keras_layers.value import NHWC_TO_NCHW, Value, in_one_order, in_order

_JOINS_SAMPLES = "axis: 0 joins or parts the samples of a batch"


@keras_form("Eltwise")
def eltwise(request: FormRequest) -> list[Value]:
    """Add, multiply or compare values at one place."""
    options = request.options(EltwiseOptions)
    inputs, is_last = in_one_order(list(request.bottoms))
    if options.operation == "SUM":
        inputs = [x if c == 1 else c * x for x, c in zip(inputs, options.coefficients, strict=True)]
    joins = {"SUM": keras.layers.Add, "PROD": keras.layers.Multiply, "MAX": keras.layers.Maximum}
    return [in_order(joins[options.operation](name=request.name)(inputs), is_last=is_last)]


@keras_form("Concat")
def concat(request: FormRequest) -> list[Value]:
    """Join along an axis."""
    axis = request.options(ConcatOptions).axis
    if axis == 0:
        request.refuse_batch(_JOINS_SAMPLES)
    if len(request.bottoms) == 1:
        return [request.bottoms[0]]
    inputs, is_last = in_one_order(list(request.bottoms))
    at = NHWC_TO_NCHW[axis] if is_last else axis
    return [in_order(keras.layers.Concatenate(axis=at, name=request.name)(inputs), is_last=is_last)]


@keras_form("Slice")
def part(request: FormRequest) -> list[Value]:
    """Part along an axis."""
    options, bottom = request.options(SliceOptions), request.bottoms[0]
    if options.axis == 0:
        request.refuse_batch(_JOINS_SAMPLES)
    sizes = [shape[options.axis] for shape in request.layer.definition.top_shapes]
    points = [sum(sizes[: at + 1]) for at in range(len(sizes) - 1)]
    axis = NHWC_TO_NCHW[options.axis] if bottom.is_last else options.axis
    parts = ops.split(bottom.values, points, axis=axis) if points else [bottom.values]
    return [bottom.wrap(values) for values in parts]


@keras_form("Axpy")
def axpy(request: FormRequest) -> list[Value]:
    """Compute a x + y, with a factor for each channel of a sample."""
    factors, x, y = request.bottoms
    inputs, is_last = in_one_order([x, y])
    channels = request.shape(1)[1]
    spread = keras.layers.Reshape((1, 1, channels) if is_last else (channels, 1, 1))(factors.caffe)
    return [in_order(spread * inputs[0] + inputs[1], is_last=is_last)]
