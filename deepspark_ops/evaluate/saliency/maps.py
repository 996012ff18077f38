"""Saliency maps: gradient times input, Grad-CAM, and occlusion by squares, in plain numpy; colours over the picture.

Gradient times input: Shrikumar, Greenside, Shcherbina and Kundaje, "Not just a black box" (2016). Grad-CAM: Selvaraju
et al., "Grad-CAM: visual explanations from deep networks via gradient-based localization" (2017), equations 1 and 2.
Occlusion: Zeiler and Fergus, "Visualizing and understanding convolutional networks" (2014), section 4.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import cv2
import numpy as np
import numpy.typing as npt

from deepspark_ops.shards.thumbnail import Picture

Array = npt.NDArray[Any]
Map = npt.NDArray[np.float64]
_FOR: Final = (60, 90, 214)
"""Blue, green, red of a pixel that raises the score: the red of the report's charts."""
_AGAINST: Final = (190, 120, 40)
_LARGEST_PERCENTILE: Final = 99.5
"""Pixels above share the full colour: a gradient has a few very large values."""
_STRONGEST: Final = 0.85
_FAINT: Final = 0.5
"""Share of the picture's contrast below the colours."""


def gradient_times_input(gradient: Array, values: Array) -> Map:
    """Return the sum over the channels of gradient times input, (H, W).

    A positive pixel raises the score. For a net without biases and with ReLUs alone the map adds up to the score.

    Args:
        gradient: (C, H, W), of the score.
        values: (C, H, W), input of the net.
    """
    product: Map = (gradient.astype(np.float64) * values).sum(axis=0)
    return product


def grad_cam(feature_maps: Array, gradients: Array) -> Map:
    """Return ReLU of the sum over k of a_k A_k, (h, w); a_k is the mean of channel k's gradient.

    Args:
        feature_maps: A, (K, h, w), top of a convolution.
        gradients: (K, h, w), of the score with respect to A.
    """
    weights = gradients.astype(np.float64).mean(axis=(1, 2))
    return np.maximum(np.tensordot(weights, feature_maps.astype(np.float64), axes=1), 0.0)


@dataclass(frozen=True)
class Squares:
    """Positions of a square on a picture.

    Attributes:
        rows: Top of each square, pixels.
        columns: Left side of each square, pixels.
        height: Rows of a square.
        width: Columns of a square.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    height: int
    width: int

    def __len__(self) -> int:
        """Return the number of squares."""
        return len(self.rows) * len(self.columns)

    def corners(self) -> list[tuple[int, int]]:
        """Return row and column of each square's upper left pixel."""
        return [(row, column) for row in self.rows for column in self.columns]


def squares_on(top: int, left: int, height: int, width: int, *, across: int) -> Squares:
    """Return overlapping squares over a window of a picture, ``2 * across - 1`` along a side at most.

    ``across`` squares stand side by side along a side of the window, without overlap.

    The stride is half a square. Every pixel of the window is in a square.
    """
    square_height, square_width = max(1, -(-height // across)), max(1, -(-width // across))
    return Squares(_starts(top, height, square_height), _starts(left, width, square_width), square_height, square_width)


def _starts(first: int, extent: int, side: int) -> tuple[int, ...]:
    last = extent - side
    return tuple(first + start for start in sorted({*range(0, last + 1, max(1, -(-side // 2))), last}))


def occluded(picture: Array, squares: Squares, *, at_once: int) -> Iterator[Array]:
    """Yield copies of a picture (C, H, W), uint8 or float32, each with a square of the picture's mean colour.

    A batch has ``at_once`` copies.
    """
    colour = picture.reshape(len(picture), -1).mean(axis=1)
    fill = (np.rint(colour) if picture.dtype == np.uint8 else colour).astype(picture.dtype)[:, None, None]
    corners = squares.corners()
    for start in range(0, len(corners), at_once):
        chunk = corners[start : start + at_once]
        copies = np.repeat(picture[None], len(chunk), axis=0)
        for copy, (row, column) in zip(copies, chunk, strict=True):
            copy[:, row : row + squares.height, column : column + squares.width] = fill
        yield copies


def occlusion_map(score: float, occluded_scores: Sequence[float], squares: Squares, extents: tuple[int, int]) -> Map:
    """Return for each pixel the mean fall of the score under the squares over the pixel, (H, W); 0 without a square.

    ``occluded_scores`` are of the copies of ``occluded``, in order.
    """
    falls, counts = np.zeros(extents), np.zeros(extents)
    for (row, column), occluded_score in zip(squares.corners(), occluded_scores, strict=True):
        area = np.s_[row : row + squares.height, column : column + squares.width]
        falls[area] += score - occluded_score
        counts[area] += 1
    mean: Map = falls / np.maximum(counts, 1)
    return mean


def overlay(picture: Picture, saliency: Map) -> Picture:
    """Return a grey or BGR picture in pale grey under the map, (H, W, 3) BGR: red raises the score, blue lowers it.

    A map of another size than the picture's is interpolated.
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
