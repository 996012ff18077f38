"""A stored sample as a small picture for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import cv2
import numpy as np
import numpy.typing as npt

from deepspark_ops.shards.files.picture_archive import EncodedPicture

Picture = npt.NDArray[np.uint8]
SMALL_PIXELS: Final = 64
"""Largest side of a picture that keeps every pixel; a larger picture is a photograph."""
_DEFAULT_QUALITY: Final = 95
"""OpenCV's default for JPEG."""


def to_picture(values: npt.NDArray[Any]) -> Picture | None:
    """Return a stored sample as a gray (H, W) or BGR (H, W, 3) picture; None if the sample is no picture.

    The range of values that are not bytes becomes 0..255.

    Args:
        values: Shape (C, H, W), uint8 or float32.
    """
    if values.ndim != 3 or values.shape[0] not in (1, 3) or min(values.shape[1:]) < 2:
        return None
    if values.dtype != np.uint8:
        low, high = float(values.min()), float(values.max())
        values = np.rint((values - low) * (255.0 / max(high - low, 1e-12))).astype(np.uint8)
    return np.ascontiguousarray(values[0] if values.shape[0] == 1 else values.transpose(1, 2, 0))


def shrunk(picture: Picture, most_pixels: int) -> Picture:
    """Return a picture with sides of at most ``most_pixels``; a small picture is returned unchanged."""
    largest = max(picture.shape[:2])
    if largest <= most_pixels:
        return picture
    height, width = (max(1, round(extent * most_pixels / largest)) for extent in picture.shape[:2])
    return np.asarray(cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA), np.uint8)


def side_by_side(pictures: Sequence[Picture]) -> Picture:
    """Return pictures side by side, (H, W, 3), scaled to the height of the first; at least one picture is needed."""
    height = pictures[0].shape[0]
    gap = max(1, height // 28)
    parts: list[Picture] = []
    for picture in pictures:
        colour = picture if picture.ndim == 3 else np.repeat(picture[:, :, None], 3, axis=2)
        if colour.shape[0] != height:
            width = max(1, round(colour.shape[1] * height / colour.shape[0]))
            colour = np.asarray(cv2.resize(colour, (width, height), interpolation=cv2.INTER_AREA), np.uint8)
        parts += [colour, np.full((height, gap, 3), 255, np.uint8)]
    return np.concatenate(parts[:-1], axis=1)


def encoded(pixels: Picture, *, is_photo: bool = False, quality: int = _DEFAULT_QUALITY) -> EncodedPicture:
    """Return a picture in a format of browsers.

    Args:
        pixels: (H, W) gray, (H, W, 3) BGR or (H, W, 4) BGRA, uint8.
        is_photo: JPEG instead of PNG.
        quality: Quality of a JPEG, 0 to 100.
    """
    suffix, media_type = (".jpg", "image/jpeg") if is_photo else (".png", "image/png")
    options = [cv2.IMWRITE_JPEG_QUALITY, quality] if is_photo else []
    written, content = cv2.imencode(suffix, pixels, options)
    assert written, "OpenCV encodes every uint8 image of one, three or four channels"
    return EncodedPicture(media_type, content.tobytes())


def small_picture(picture: Picture, most_pixels: int, *, quality: int = _DEFAULT_QUALITY) -> EncodedPicture:
    """Return a picture with sides of at most ``most_pixels``: a small picture unchanged, else a photograph."""
    is_photo = max(picture.shape[:2]) > SMALL_PIXELS
    return encoded(shrunk(picture, most_pixels), is_photo=is_photo, quality=quality)
