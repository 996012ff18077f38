"""Layers of Caffe's forks as loops over every value, written from the forks' sources; nothing of the package is used.

SSD (Permute, Normalize), SENet (Axpy), DeepLab (Interp), ShuffleNet (ShuffleChannel), YOLO's ports and
SegNet (Upsample).
"""

import numpy as np


def slow_permute(x, *, order):
    """Axis i of the top is axis order[i] of the bottom."""
    top = np.zeros([x.shape[axis] for axis in order])
    for index in np.ndindex(*x.shape):
        top[tuple(index[axis] for axis in order)] = x[index]
    return top


def slow_normalize(x, scale, *, across_spatial, eps):
    """x (N, C, spatial...); scale one value or (C,). eps is added to the sum of squares."""
    top = np.zeros_like(x)
    for n, c, *position in np.ndindex(*x.shape):
        group = x[n] if across_spatial else x[(n, slice(None), *position)]
        total = eps
        for value in group.ravel():
            total += value * value
        factor = scale if np.ndim(scale) == 0 else scale[c]
        top[(n, c, *position)] = factor * x[(n, c, *position)] / total**0.5
    return top


def slow_axpy(scale, x, y):
    """scale (N, C) or (N, C, 1, 1); x and y (N, C, H, W)."""
    top = np.zeros_like(x)
    for n, c, h, w in np.ndindex(*x.shape):
        top[n, c, h, w] = scale.reshape(scale.shape[:2])[n, c] * x[n, c, h, w] + y[n, c, h, w]
    return top


def slow_interp(x, *, height, width, pad_beg=0, pad_end=0):
    """Bilinear, corner on corner; the paddings are zero or negative: that many rows and columns are cut off."""
    x = x[:, :, -pad_beg : x.shape[2] + pad_end, -pad_beg : x.shape[3] + pad_end]
    rows, columns = x.shape[2:]
    row_step = (rows - 1) / (height - 1) if height > 1 else 0.0
    column_step = (columns - 1) / (width - 1) if width > 1 else 0.0
    top = np.zeros((*x.shape[:2], height, width))
    for n, c, h, w in np.ndindex(*top.shape):
        # The ends meet the last pixel exactly; a rounding error must not count as the pixel before.
        down, right = round(h * row_step, 9), round(w * column_step, 9)
        r, k = int(down), int(right)
        below, next_column = min(r + 1, rows - 1), min(k + 1, columns - 1)
        a, b = down - r, right - k
        top[n, c, h, w] = (1 - a) * ((1 - b) * x[n, c, r, k] + b * x[n, c, r, next_column]) + a * (
            (1 - b) * x[n, c, below, k] + b * x[n, c, below, next_column]
        )
    return top


def slow_shuffle_channel(x, *, group):
    """Channel j of group i goes to place j * group + i."""
    top = np.zeros_like(x)
    per_group = x.shape[1] // group
    for i in range(group):
        for j in range(per_group):
            top[:, j * group + i] = x[:, i * per_group + j]
    return top


def slow_upsample(x, *, scale_h, scale_w):
    top = np.zeros((*x.shape[:2], x.shape[2] * scale_h, x.shape[3] * scale_w))
    for n, c, h, w in np.ndindex(*top.shape):
        top[n, c, h, w] = x[n, c, h // scale_h, w // scale_w]
    return top


def slow_unpool(x, mask, *, size):
    """SegNet's Upsample: mask holds y * W + x of the top's plane for every value of x."""
    top = np.zeros((*x.shape[:2], *size))
    for n, c, h, w in np.ndindex(*x.shape):
        top[n, c, int(mask[n, c, h, w]) // size[1], int(mask[n, c, h, w]) % size[1]] = x[n, c, h, w]
    return top
