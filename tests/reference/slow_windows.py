"""Layers that slide a window, as loops over every output, written from Caffe 1.0's base_conv_layer.cpp,
im2col.cpp, pooling_layer.cpp, spp_layer.cpp and lrn_layer.cpp; nothing of the package is used."""

from math import ceil, floor

import numpy as np


def slow_convolution(x, w, b=None, *, stride, pad, dilation, group=1):
    """x (N, C, spatial...), w (out, C / group, kernel...), any number of spatial axes."""
    rank = x.ndim - 2
    kernel = w.shape[2:]
    size = [(x.shape[2 + i] + 2 * pad[i] - (dilation[i] * (kernel[i] - 1) + 1)) // stride[i] + 1 for i in range(rank)]
    n_outputs, per_group = w.shape[0], w.shape[1]
    top = np.zeros((x.shape[0], n_outputs, *size))
    for n, o, *position in np.ndindex(*top.shape):
        first = (o // (n_outputs // group)) * per_group
        total = 0.0 if b is None else b[o]
        for c, *tap in np.ndindex(per_group, *kernel):
            at = [position[i] * stride[i] + tap[i] * dilation[i] - pad[i] for i in range(rank)]
            if all(0 <= at[i] < x.shape[2 + i] for i in range(rank)):
                total += x[(n, first + c, *at)] * w[(o, c, *tap)]
        top[(n, o, *position)] = total
    return top


def slow_deconvolution(x, w, b=None, *, stride, pad, dilation, group=1):
    """x (N, C, spatial...), w (C, out / group, kernel...): every value is spread by the kernel."""
    rank = x.ndim - 2
    kernel = w.shape[2:]
    size = [stride[i] * (x.shape[2 + i] - 1) + dilation[i] * (kernel[i] - 1) + 1 - 2 * pad[i] for i in range(rank)]
    channels, per_group = w.shape[0], w.shape[1]
    top = np.zeros((x.shape[0], per_group * group, *size))
    if b is not None:
        top += np.reshape(b, (1, -1) + (1,) * rank)
    for n, c, *position in np.ndindex(*x.shape):
        first = (c // (channels // group)) * per_group
        for o, *tap in np.ndindex(per_group, *kernel):
            at = [position[i] * stride[i] + tap[i] * dilation[i] - pad[i] for i in range(rank)]
            if all(0 <= at[i] < size[i] for i in range(rank)):
                top[(n, first + o, *at)] += x[(n, c, *position)] * w[(c, o, *tap)]
    return top


def slow_im2col(x, *, kernel, stride, pad, dilation):
    """x (N, C, H, W) -> (N, C kh kw, H', W'), zeros in the padding."""
    size = [(x.shape[2 + i] + 2 * pad[i] - (dilation[i] * (kernel[i] - 1) + 1)) // stride[i] + 1 for i in (0, 1)]
    top = np.zeros((x.shape[0], x.shape[1] * kernel[0] * kernel[1], *size))
    for n, c, ky, kx, y, xx in np.ndindex(x.shape[0], x.shape[1], *kernel, *size):
        row, column = y * stride[0] - pad[0] + ky * dilation[0], xx * stride[1] - pad[1] + kx * dilation[1]
        if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
            top[n, (c * kernel[0] + ky) * kernel[1] + kx, y, xx] = x[n, c, row, column]
    return top


def slow_pooled_size(size, kernel, stride, pad, *, is_ceil=True):
    """Rows and columns of the top, PoolingLayer::Reshape."""
    rounded = ceil if is_ceil else floor
    pooled = [rounded((size[i] + 2 * pad[i] - kernel[i]) / stride[i]) + 1 for i in (0, 1)]
    if pad[0] or pad[1]:
        for i in (0, 1):
            if (pooled[i] - 1) * stride[i] >= size[i] + pad[i]:
                pooled[i] -= 1
    return pooled


def slow_pooling(x, *, method, kernel, stride, pad=(0, 0), is_ceil=True):
    """Return (top, mask); the mask holds y * W + x of each first maximum (MAX only)."""
    height, width = x.shape[2:]
    pooled = slow_pooled_size((height, width), kernel, stride, pad, is_ceil=is_ceil)
    top = np.zeros((*x.shape[:2], *pooled))
    mask = np.zeros_like(top)
    for n, c, py, px in np.ndindex(*top.shape):
        y0, x0 = py * stride[0] - pad[0], px * stride[1] - pad[1]
        y1, x1 = min(y0 + kernel[0], height + pad[0]), min(x0 + kernel[1], width + pad[1])
        area = (y1 - y0) * (x1 - x0)
        best, total = -np.inf, 0.0
        for y in range(max(y0, 0), min(y1, height)):
            for xx in range(max(x0, 0), min(x1, width)):
                value = x[n, c, y, xx]
                total += value
                if value > best:
                    best, mask[n, c, py, px] = value, y * width + xx
        top[n, c, py, px] = best if method == "MAX" else total / area
    return top, mask


def slow_spp(x, *, height, method):
    """Pyramid of 1, 2, 4, ... windows along each axis, joined level by level."""
    parts = []
    for level in range(height):
        bins = 2**level
        kernel = [ceil(x.shape[2 + i] / bins) for i in (0, 1)]
        pad = [(kernel[i] * bins - x.shape[2 + i] + 1) // 2 for i in (0, 1)]
        pooled, _ = slow_pooling(x, method=method, kernel=kernel, stride=kernel, pad=pad)
        parts.append(pooled)
    if height == 1:
        return parts[0]
    return np.concatenate([part.reshape(x.shape[0], -1) for part in parts], axis=1)


def slow_lrn_across(x, *, n, alpha, beta, k):
    top = np.zeros_like(x)
    for b, c, y, xx in np.ndindex(*x.shape):
        total = 0.0
        for other in range(max(c - (n - 1) // 2, 0), min(c + (n - 1) // 2, x.shape[1] - 1) + 1):
            total += x[b, other, y, xx] ** 2
        top[b, c, y, xx] = x[b, c, y, xx] / (k + alpha / n * total) ** beta
    return top


def slow_lrn_within(x, *, n, alpha, beta):
    means, _ = slow_pooling(x**2, method="AVE", kernel=(n, n), stride=(1, 1), pad=((n - 1) // 2,) * 2)
    return x * (1 + alpha * means) ** -beta
