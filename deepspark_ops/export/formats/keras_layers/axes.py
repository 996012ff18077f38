"""Layers that move, repeat, cut or reduce axes."""

from __future__ import annotations

from math import prod

import keras
from keras import ops

from caffe_import.layers.argmax import ArgMaxOptions
from caffe_import.layers.crop import CropOptions
from caffe_import.layers.permute import PermuteOptions
from caffe_import.layers.reduction import ReductionOptions
from caffe_import.layers.shuffle_channel import ShuffleChannelOptions
from caffe_import.layers.softmax import SoftmaxOptions
from caffe_import.layers.tile import TileOptions
from deepspark_ops.export.formats.keras_layers.registry import FormRequest, keras_form
from deepspark_ops.export.formats.keras_layers.value import NCHW_TO_NHWC, NHWC_TO_NCHW, Value


@keras_form("Reshape", "Flatten")
def reshape(request: FormRequest) -> list[Value]:
    """Write the same values in another shape, sample by sample."""
    shape, top = request.shape(), request.top_shape()
    if prod(shape[1:]) != prod(top[1:]):
        request.refuse_batch(f"from {shape} to {top} it joins or parts the samples of a batch")
    return [Value(caffe=keras.layers.Reshape(top[1:], name=request.name)(request.bottoms[0].caffe))]


@keras_form("Permute")
def permute(request: FormRequest) -> list[Value]:
    """Transpose; SSD's order (0, 2, 3, 1) of a channels-last image needs nothing."""
    order, bottom = request.options(PermuteOptions).order, request.bottoms[0]
    if order[0] != 0:
        request.refuse_batch(f"order {list(order)} moves the batch axis")
    if order == NCHW_TO_NHWC and bottom.is_last:
        return [Value(caffe=bottom.last)]
    return [Value(caffe=keras.layers.Permute(order[1:], name=request.name)(bottom.caffe))]


@keras_form("Softmax")
def softmax(request: FormRequest) -> list[Value]:
    """Add Softmax over the axis of the classes."""
    axis, bottom = request.options(SoftmaxOptions).axis, request.bottoms[0]
    if axis == 0:
        request.refuse_batch("axis: 0 compares the samples of a batch")
    layer = keras.layers.Softmax(axis=NHWC_TO_NCHW[axis] if bottom.is_last else axis, name=request.name)
    return [bottom.wrap(layer(bottom.values))]


@keras_form("Tile")
def tile(request: FormRequest) -> list[Value]:
    """Repeat along an axis."""
    options, bottom = request.options(TileOptions), request.bottoms[0]
    if options.axis == 0:
        request.refuse_batch("axis: 0 repeats the samples of a batch")
    axis = NHWC_TO_NCHW[options.axis] if bottom.is_last else options.axis
    return [bottom.wrap(ops.concatenate([bottom.values] * options.tiles, axis=axis))]


@keras_form("Crop")
def crop(request: FormRequest) -> list[Value]:
    """Cut to the second bottom's extents."""
    options, bottom = request.options(CropOptions), request.bottoms[0]
    if options.crops_batch:
        request.refuse_batch("axis: 0 cuts the samples of a batch")
    slices = [
        slice(None) if axis == 0 else slice(begin, begin + extent)
        for axis, (begin, extent) in enumerate(zip(options.begin, request.top_shape(), strict=True))
    ]
    order = NCHW_TO_NHWC if bottom.is_last else range(len(slices))
    return [bottom.wrap(bottom.values[tuple(slices[axis] for axis in order)])]


@keras_form("Reduction")
def reduction(request: FormRequest) -> list[Value]:
    """Sum or average the trailing axes."""
    options, x = request.options(ReductionOptions), request.bottoms[0].caffe
    if options.axis == 0:
        request.refuse_batch("axis: 0 sums over the samples of a batch")
    axes = tuple(range(options.axis, len(request.shape())))
    reductions = {
        "SUM": lambda: ops.sum(x, axes),
        "ASUM": lambda: ops.sum(ops.abs(x), axes),
        "SUMSQ": lambda: ops.sum(ops.square(x), axes),
        "MEAN": lambda: ops.mean(x, axes),
    }
    return [Value(caffe=options.coeff * reductions[options.operation]())]


@keras_form("ArgMax")
def argmax(request: FormRequest) -> list[Value]:
    """Return the index of the largest value of an axis; the larger index among equals, as in Caffe."""
    options, x = request.options(ArgMaxOptions), request.bottoms[0].caffe
    if options.axis is None or options.axis == 0 or options.top_k != 1 or options.out_max_val:
        request.refuse("only top_k: 1 along an axis behind the batch, without values, has a Keras form")
    reversed_index = ops.argmax(ops.flip(x, options.axis), axis=options.axis, keepdims=True)
    last = request.shape()[options.axis] - 1
    return [Value(caffe=float(last) - ops.cast(reversed_index, "float32"))]


@keras_form("ShuffleChannel")
def shuffle_channel(request: FormRequest) -> list[Value]:
    """Transpose the channels as a table (group, channels / group)."""
    group, shape = request.options(ShuffleChannelOptions).group, request.shape()
    per_group = shape[1] // group
    bottom = request.bottoms[0]
    if bottom.is_last:
        table = keras.layers.Reshape((*shape[2:], group, per_group))(bottom.last)
        turned = ops.swapaxes(table, -1, -2)
        return [Value(last=keras.layers.Reshape((*shape[2:], shape[1]), name=request.name)(turned))]
    table = keras.layers.Reshape((group, per_group, *shape[2:]))(bottom.caffe)
    return [Value(caffe=keras.layers.Reshape(shape[1:], name=request.name)(ops.swapaxes(table, 1, 2)))]
