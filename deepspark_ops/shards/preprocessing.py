"""Steps from an image file to a training sample, as a dataset's and a bundle's manifests record them.

``deepspark_ops/ingest/images/pixels.py`` applies the steps: at ingestion, and to raw images that a bundle answers.
``TableColumns`` has the steps of a table's features.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from deepspark_ops.frozen_model import FrozenModel

PixelDtype = Literal["uint8", "float32"]
PixelRange = tuple[float, float]
"""The least and the largest pixel of some images."""
_Extent = Annotated[int, Field(ge=0)]


class PixelSteps(FrozenModel):
    """Steps of ingestion for every image.

    Attributes:
        version: Version of the form and of the steps; version 1 has no ``pixel_range``.
        gray: Colour became one channel, by OpenCV's conversion.
        decode_color: Decoding of a compressed image unless ``gray``: True: BGR, None: channels of the file.
        max_pixel: Largest value of the source; values were scaled from this value to 255, before the resize.
        height: Rows after the resize, pixels; 0 without a resize.
        width: Columns, likewise.
        scaled_decoding: libjpeg decoded at 1/2, 1/4 or 1/8 where that was still as large as the resize made an image.
        dtype: Type of the pixels after these steps; None if unknown.
        pixel_range: Pixel range of the training split after these steps; None if unknown.
    """

    version: Literal[1, 2] = 2
    gray: bool = False
    decode_color: bool | None = None
    max_pixel: Annotated[int, Field(ge=1, le=255)] = 255
    height: _Extent = 0
    width: _Extent = 0
    scaled_decoding: bool = False
    dtype: PixelDtype | None = None
    pixel_range: PixelRange | None = None


class ImagePreprocessing(PixelSteps):
    """Steps from an image file to the sample that a net's data layer reads.

    Attributes:
        sample_shape: (C, H, W) of every sample; None if sizes may differ.
        encoded: The dataset keeps images compressed; an image with changed pixels was compressed again.
        read_color: Decoding by the net's data layer: True: BGR, False: gray, None: channels of the file.
    """

    sample_shape: tuple[int, int, int] | None = None
    encoded: bool = False
    read_color: bool | None = None

    def in_words(self) -> list[str]:
        """Return the steps in order, for people; empty without a step.

        Example:
            >>> ImagePreprocessing(gray=True, max_pixel=16, height=28, width=28).in_words()[1:]
            ['scale pixels so that 16 becomes 255, rounded', 'resize to 28 x 28 (height x width), bilinear, by OpenCV']
        """
        steps = []
        if self.gray:
            steps.append("decode as gray, or turn colour into gray, by OpenCV")
        elif self.decode_color:
            steps.append("decode as colour of 8 bits a channel, without transparency, turned as EXIF says")
        if self.max_pixel != 255:
            steps.append(f"scale pixels so that {self.max_pixel} becomes 255, rounded")
        if self.height:
            reduced = ", JPEG decoded at 1/2, 1/4 or 1/8 where that is large enough" if self.scaled_decoding else ""
            steps.append(f"resize to {self.height} x {self.width} (height x width), bilinear, by OpenCV{reduced}")
        if self.encoded and (self.height or self.gray or self.max_pixel != 255):
            steps.append("compress again (JPEG stays JPEG, of quality 95) and decode")
        return steps

    def differences(self, other: ImagePreprocessing) -> list[str]:
        """Return the different steps of other images, ``step=value (trained: value)``, for people."""
        return [
            f"{name}={getattr(other, name)} (trained: {getattr(self, name)})"
            for name in _COMPARED
            if getattr(self, name) != getattr(other, name)
        ]


_COMPARED: Iterable[str] = ("gray", "max_pixel", "height", "width", "scaled_decoding", "encoded")


def joint_range(ranges: Iterable[PixelRange | None]) -> PixelRange | None:
    """Return the common range of parts; None if the range of a part is unknown.

    Example:
        >>> joint_range([(0.0, 16.0), (3.0, 255.0)]), joint_range([(0.0, 16.0), None])
        ((0.0, 255.0), None)
    """
    least, largest = math.inf, -math.inf
    for part in ranges:
        if part is None:
            return None
        least, largest = min(least, part[0]), max(largest, part[1])
    return (least, largest) if math.isfinite(largest - least) else None
