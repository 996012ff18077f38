"""Caffe's DataTransformer::Transform as plain loops over pixels, from its description, image by image.

Source: BVLC Caffe @9b89154, src/caffe/data_transformer.cpp.
"""

import numpy as np


def transform_image(image, *, mean, scale, crop, row, column, flip):
    """image: (C, H, W); mean: (C, H, W), or a list with one value per channel, or None. Returns (C, h, w) float32."""
    channels, height, width = image.shape
    out_h, out_w = (crop, crop) if crop else (height, width)
    out = np.zeros((channels, out_h, out_w), np.float32)
    for c in range(channels):
        for y in range(out_h):
            for x in range(out_w):
                value = np.float32(image[c, row + y, column + x])
                if isinstance(mean, np.ndarray):
                    value = value - np.float32(mean[c, row + y, column + x])
                elif mean is not None:
                    value = value - np.float32(mean[c])
                target = out_w - 1 - x if flip else x
                out[c, y, target] = value * np.float32(scale)
    return out
