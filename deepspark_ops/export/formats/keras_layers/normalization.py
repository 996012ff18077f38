"""Normalisation: LRN, BatchNorm, MVN, Normalize; and Scale and Bias, which are Keras's BatchNormalization at rest."""

from __future__ import annotations

from math import prod
from typing import Any

import keras
import numpy as np
from keras import ops

from caffe_import.layers.batch_norm import BatchNormOptions
from caffe_import.layers.bias import BiasOptions
from caffe_import.layers.lrn import LRNOptions
from caffe_import.layers.mvn import MVNOptions
from caffe_import.layers.normalize import NormalizeOptions
from caffe_import.layers.scale import ScaleOptions
from deepspark_ops.export.formats.keras_layers.registry import Array, FormRequest, keras_form, with_weights
from deepspark_ops.export.formats.keras_layers.value import NCHW_TO_NHWC, Value


@keras_form("LRN")
def lrn(request: FormRequest) -> list[Value]:
    """Compute x / (k + alpha * mean of squares) ^ beta, channels last."""
    options, x = request.options(LRNOptions), request.bottoms[0].last
    reach = options.local_size // 2
    squares = ops.square(x)
    if options.region == "ACROSS_CHANNELS":
        channels = request.shape()[1]
        padded = ops.pad(squares, ((0, 0), (0, 0), (0, 0), (reach, reach)))
        terms = [padded[..., at : at + channels] for at in range(options.local_size)]
        mean = sum(terms[1:], start=terms[0]) / float(options.local_size)
    else:
        padded = ops.pad(squares, ((0, 0), (reach, reach), (reach, reach), (0, 0)))
        mean = keras.layers.AveragePooling2D(options.local_size, 1, name=request.name)(padded)
    return [Value(last=x * ops.power(options.k + options.alpha * mean, -options.beta))]


@keras_form("BatchNorm")
def batch_norm(request: FormRequest) -> list[Value]:
    """Add BatchNormalization without its affine part; Caffe's statistics are sums, counted by the third blob."""
    options, bottom = request.options(BatchNormOptions), request.bottoms[0]
    if not options.use_global_stats:
        request.refuse("use_global_stats: false computes with the other samples of the batch; there is no Keras form")
    means, variances, (count,) = request.params
    factor = np.float32(0 if count == 0 else 1 / count)
    if len(request.shape()) == 1:
        values = (bottom.values - means[0] * factor) / np.sqrt(variances[0] * factor + np.float32(options.eps))
        return [bottom.wrap(values)]
    layer = keras.layers.BatchNormalization(
        axis=-1 if bottom.is_last else 1, epsilon=options.eps, center=False, scale=False, name=request.name
    )
    return [bottom.wrap(with_weights(layer, bottom.values, means * factor, variances * factor))]


@keras_form("Scale")
def scale(request: FormRequest) -> list[Value]:
    """Multiply by the blob or the second bottom, then add the bias."""
    options, bottom = request.options(ScaleOptions), request.bottoms[0]
    bias = request.params[-1] if options.has_bias else None
    if len(request.bottoms) == 1:
        return [_affine(request, bottom, options.axis, request.params[0], bias)]
    top = bottom.wrap(bottom.values * _repeated(request, options.axis))
    return [top if bias is None else _affine(request, top, options.axis, None, bias)]


@keras_form("Bias")
def bias(request: FormRequest) -> list[Value]:
    """Add the blob or the second bottom."""
    options, bottom = request.options(BiasOptions), request.bottoms[0]
    if len(request.bottoms) == 2:
        return [bottom.wrap(bottom.values + _repeated(request, options.axis))]
    return [_affine(request, bottom, options.axis, None, request.params[0])]


def _repeated(request: FormRequest, axis: int) -> Any:
    """Return the second bottom in a shape that broadcasts to the first bottom."""
    bottom, other = request.bottoms
    rank, side_shape = len(request.shape()), request.shape(1)
    if axis == 0:
        shape: tuple[int, ...] = (*side_shape[1:], *(1,) * (rank - len(side_shape)))
    else:
        request.refuse_batch("its second bottom covers no batch axis")
    spread = keras.layers.Reshape(shape)(other.caffe)
    return ops.transpose(spread, NCHW_TO_NHWC) if bottom.is_last else spread


def _affine(request: FormRequest, bottom: Value, axis: int, factors: Array | None, added: Array | None) -> Value:
    """Return ``bottom`` times ``factors`` plus ``added``; both have the extents of the bottom from ``axis`` on."""
    first = next(blob for blob in (factors, added) if blob is not None)
    if axis == 0 and first.ndim:
        request.refuse_batch("axis: 0 has a factor for each sample of a batch")
    layer = keras.layers.BatchNormalization(
        axis=-1 if bottom.is_last and axis == 1 and first.ndim == 1 else 2,
        epsilon=0.0,
        scale=factors is not None,
        center=added is not None,
        name=request.name,
    )
    n = max(first.size, 1)
    identity_statistics = (np.zeros(n, np.float32), np.ones(n, np.float32))  # mean and variance, which change nothing
    weights = [blob.ravel() for blob in (factors, added) if blob is not None]
    if layer.axis == -1:
        return Value(last=with_weights(layer, bottom.last, *weights, *identity_statistics))
    shape = request.shape()[1:]
    table = keras.layers.Reshape(
        (prod(shape[: max(axis - 1, 0)]), n, prod(shape) // prod(shape[: max(axis - 1, 0)]) // n)
    )
    scaled = with_weights(layer, table(bottom.caffe), *weights, *identity_statistics)
    return Value(caffe=keras.layers.Reshape(shape)(scaled))


@keras_form("MVN")
def mvn(request: FormRequest) -> list[Value]:
    """Subtract the mean over (H, W), or (C, H, W), and divide by the deviation + eps."""
    options = request.options(MVNOptions)
    x = keras.layers.Reshape(request.top_shape()[1:])(request.bottoms[0].caffe)
    axes = (1, 2, 3) if options.across_channels else (2, 3)
    centred = x - ops.mean(x, axes, keepdims=True)
    if not options.normalize_variance:
        return [Value(caffe=centred)]
    deviation = ops.sqrt(ops.mean(ops.square(centred), axes, keepdims=True)) + options.eps
    return [Value(caffe=centred / deviation)]


@keras_form("Normalize")
def normalize(request: FormRequest) -> list[Value]:
    """Compute scale * x / sqrt(sum of squares + eps)."""
    options, bottom = request.options(NormalizeOptions), request.bottoms[0]
    x, rank = bottom.values, len(request.shape())
    channel_axis = rank - 1 if bottom.is_last else 1
    axes = tuple(range(1, rank)) if options.across_spatial else (channel_axis,)
    (factors,) = request.params
    if not options.channel_shared:
        factors = factors.reshape([-1 if axis == channel_axis else 1 for axis in range(rank)])
    squares = ops.sum(ops.square(x), axes, keepdims=True)
    return [bottom.wrap(x * ops.rsqrt(squares + options.eps) * factors)]
