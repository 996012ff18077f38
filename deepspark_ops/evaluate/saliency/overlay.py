"""A saliency map in colours over its picture."""

from __future__ import annotations

from typing import Final

import cv2
import numpy as np

from deepspark_ops.evaluate.saliency.maps import Map
from deepspark_ops.shards.thumbnail import Picture

_FOR: Final = (60, 90, 214)
"""Blue, green, red of a pixel that raises the score: the red of the report's charts."""
_AGAINST: Final = (190, 120, 40)
_LARGEST_PERCENTILE: Final = 99.5
"""Pixels above share the full colour: a gradient has a few very large values."""
_STRONGEST: Final = 0.85
_FAINT: Final = 0.5
"""Share of the picture's contrast below the colours."""


def overlay(picture: Picture, saliency: Map) -> Picture:
    """Return the picture in pale grey under the map, (H, W, 3) BGR: red raises the score, blue lowers it.

    Args:
        picture: (H, W) grey or (H, W, 3) BGR.
        saliency: (h, w); another size than the picture's is interpolated.
    """
    height, width = picture.shape[:2]
    enlarged = saliency
    if saliency.shape != (height, width):
        enlarged = np.asarray(cv2.resize(saliency, (width, height), interpolation=cv2.INTER_LINEAR), np.float64)
    grey = picture if picture.ndim == 2 else np.asarray(cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY), np.uint8)
    below = np.repeat(255.0 - _FAINT * (255.0 - grey[:, :, None]), 3, axis=2)
    largest = float(np.percentile(np.abs(enlarged), _LARGEST_PERCENTILE)) or float(np.abs(enlarged).max()) or 1.0
    strength = np.clip(np.abs(enlarged) / largest, 0.0, 1.0)[..., None] * _STRONGEST
    colours = np.where(enlarged[..., None] >= 0, np.array(_FOR), np.array(_AGAINST))
    mixed: Picture = np.rint(below * (1 - strength) + colours * strength).astype(np.uint8)
    return mixed
