"""One window of Caffe's WindowData layer, pixel by pixel. From window_data_layer.cpp, ``load_batch``."""

from __future__ import annotations

from math import floor

import numpy as np


def c_round(value: np.float32) -> int:
    """C's round: halves go away from zero."""
    exact = float(value)  # the half must not be added in float32
    return floor(exact + 0.5) if exact >= 0 else -floor(-exact + 0.5)


def bilinear(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Resize (C, H, W) with half-pixel centres and clamped borders, in float64."""
    channels, rows, columns = image.shape
    out = np.zeros((channels, height, width))
    for y in range(height):
        source_y = min(max((y + 0.5) * rows / height - 0.5, 0), rows - 1)
        y0 = int(source_y)
        y1, part_y = min(y0 + 1, rows - 1), source_y - y0
        for x in range(width):
            source_x = min(max((x + 0.5) * columns / width - 0.5, 0), columns - 1)
            x0 = int(source_x)
            x1, part_x = min(x0 + 1, columns - 1), source_x - x0
            for c in range(channels):
                above = image[c, y0, x0] * (1 - part_x) + image[c, y0, x1] * part_x
                below = image[c, y1, x0] * (1 - part_x) + image[c, y1, x1] * part_x
                out[c, y, x] = above * (1 - part_y) + below * part_y
    return out


def warped_window(
    image: np.ndarray,
    corners: tuple[int, int, int, int],
    *,
    crop: int,
    context_pad: int = 0,
    square: bool = False,
    mirrored: bool = False,
    mean: np.ndarray | None = None,
    mean_values: tuple[float, ...] = (0.0, 0.0, 0.0),
    scale: float = 1.0,
) -> np.ndarray:
    """Return (C, crop, crop); image (C, H, W), corners x1, y1, x2, y2, mean (C, >= crop, >= crop)."""
    channels, rows, columns = image.shape
    x1, y1, x2, y2 = corners
    width = height = crop
    pad_w = pad_h = 0
    if context_pad > 0 or square:
        # Dtype, that is float32: in float64 a half is rounded to the other pixel now and then
        context_scale = np.float32(crop) / np.float32(crop - 2 * context_pad)
        half_height, half_width = np.float32(y2 - y1 + 1) / np.float32(2), np.float32(x2 - x1 + 1) / np.float32(2)
        center_x, center_y = np.float32(x1) + half_width, np.float32(y1) + half_height
        if square:
            half_width = half_height = max(half_width, half_height)
        x1, x2 = c_round(center_x - half_width * context_scale), c_round(center_x + half_width * context_scale)
        y1, y2 = c_round(center_y - half_height * context_scale), c_round(center_y + half_height * context_scale)
        unclipped_height, unclipped_width = y2 - y1 + 1, x2 - x1 + 1
        pad_x1, pad_y1 = max(0, -x1), max(0, -y1)
        pad_x2, pad_y2 = max(0, x2 - columns + 1), max(0, y2 - rows + 1)
        x1, x2, y1, y2 = x1 + pad_x1, x2 - pad_x2, y1 + pad_y1, y2 - pad_y2
        scale_x, scale_y = (np.float32(crop) / np.float32(side) for side in (unclipped_width, unclipped_height))
        width, height = c_round(np.float32(x2 - x1 + 1) * scale_x), c_round(np.float32(y2 - y1 + 1) * scale_y)
        pad_h = c_round(np.float32(pad_y1) * scale_y)
        pad_w = c_round(np.float32(pad_x2 if mirrored else pad_x1) * scale_x)
        height, width = min(height, crop - pad_h), min(width, crop - pad_w)
    pixels = bilinear(image[:, y1 : y2 + 1, x1 : x2 + 1].astype(float), height, width)
    if mirrored:
        pixels = pixels[:, :, ::-1]
    out = np.zeros((channels, crop, crop))
    offset = (mean.shape[-1] - crop) // 2 if mean is not None else 0
    for c in range(channels):
        for h in range(height):
            for w in range(width):
                less = mean_values[c] if mean is None else mean[c, h + offset + pad_h, w + offset + pad_w]
                out[c, h + pad_h, w + pad_w] = (pixels[c, h, w] - less) * scale
    return out
