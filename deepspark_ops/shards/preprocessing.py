"""Steps from an image file to a training sample, as a dataset's and a bundle's manifests record them.

``deepspark_ops/ingest/images/pixels.py`` applies the steps: at ingestion, and to raw images that a bundle answers.
What is done to a table's features is ``TableColumns``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

PixelDtype = Literal["uint8", "float32"]
PixelRange = tuple[float, float]
"""The least and the largest pixel of some images."""
_Extent = Annotated[int, Field(ge=0)]


class PixelSteps(BaseModel):
    """What ingestion did to every image.

    Attributes:
        version: Of this form and of what the steps mean; version 1 has no ``pixel_range``.
        gray: Colour became one channel, by OpenCV's conversion.
        decode_color: How a compressed image was decoded unless ``gray``: True as BGR, None as it is.
        max_pixel: Largest value of the source; values were scaled so that it became 255, before the resize.
        height: Rows after the resize, pixels; 0: the size was kept.
        width: Columns, likewise.
        scaled_decoding: libjpeg decoded at 1/2, 1/4 or 1/8 where that was still as large as the resize made an image.
        dtype: Of the pixels after these steps; None where it is not known.
        pixel_range: Of the training split after these steps; None where it is not known.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

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
    """What was done to an image from its file to the sample that a net's data layer reads.

    Attributes:
        sample_shape: (C, H, W) of every sample; None where sizes may differ.
        encoded: The dataset keeps images compressed: they were compressed anew where the steps changed their pixels.
        read_color: How the net's data layer decodes those: True as BGR, False as gray, None as they are.
    """

    sample_shape: tuple[int, int, int] | None = None
    encoded: bool = False
    read_color: bool | None = None

    def in_words(self) -> list[str]:
        """Return the steps in order, for people; empty where an image is taken as it is.

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
        """Return what was done otherwise to other images, ``step=value (trained: value)``, for people."""
        return [
            f"{name}={getattr(other, name)} (trained: {getattr(self, name)})"
            for name in _COMPARED
            if getattr(self, name) != getattr(other, name)
        ]


_COMPARED: Iterable[str] = ("gray", "max_pixel", "height", "width", "scaled_decoding", "encoded")


def joint_range(ranges: Iterable[PixelRange | None]) -> PixelRange | None:
    """Return the range of all images from the ranges of their parts; None if the range of a part is not known.

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
