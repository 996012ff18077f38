"""From a record to the pixels that are stored (decode, gray, scale, resize), and whether its bytes may stay."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from caffe_import.errors import DataSourceError
from caffe_import.files.datum import Image, chw_from_hwc, decode_image, resize_image
from deepspark_ops.ingest.records import RecordError

_JPEG_MAGIC = b"\xff\xd8"


@dataclass(frozen=True)
class PixelRecipe:
    """What is done to every image of a dataset.

    Attributes:
        gray: One channel, by OpenCV's conversion.
        decode_color: How a compressed image is decoded unless ``gray``: True as BGR, None as it is.
        max_pixel: Largest value of the source; values are scaled so that it becomes 255, before the resize.
        height: Rows after the resize, pixels; 0 keeps the size.
        width: Columns, likewise.
    """

    gray: bool = False
    decode_color: bool | None = None
    max_pixel: int = 255
    height: int = 0
    width: int = 0

    def apply(self, record: Image | bytes) -> Image:
        """Return the record's pixels, (C, H, W), uint8 or float32.

        Raises:
            RecordError: Not an image, or a value above ``max_pixel``.
        """
        if isinstance(record, bytes):
            image = self._decode(record)
        else:
            image = _to_gray(record) if self.gray and record.shape[0] == 3 else record
        if self.max_pixel != 255:
            image = self._scale(image)
        return resize_image(image, self.height, self.width) if self.height else image

    def _decode(self, record: bytes) -> Image:
        try:
            return decode_image(record, color=False if self.gray else self.decode_color, where="record")
        except DataSourceError as error:
            raise RecordError(str(error).removeprefix("record: ")) from error

    def _scale(self, image: Image) -> Image:
        if image.max() > self.max_pixel:
            msg = f"pixel value {image.max()} exceeds max_pixel={self.max_pixel}"
            raise RecordError(msg)
        if image.dtype != np.uint8:
            return image * np.float32(255 / self.max_pixel)
        # Rounded to the nearest level.
        return ((image.astype(np.uint32) * 510 + self.max_pixel) // (2 * self.max_pixel)).astype(np.uint8)


def compress(record: Image | bytes, image: Image) -> bytes:
    """Return ``image`` compressed: the record's own bytes if they decode to exactly these pixels, else anew.

    convert_imageset keeps a file's bytes unless it resizes. A reader decodes without hints (as Caffe does by
    default), so bytes that would then give other pixels (a gray file among colour ones, a rotated photograph) are
    written anew: as JPEG if the record was one, else as PNG, which loses nothing.

    Raises:
        RecordError: Not 8-bit pixels of 1 or 3 channels.
    """
    if isinstance(record, bytes) and _decodes_to(record, image):
        return record
    if image.dtype != np.uint8 or image.shape[0] not in (1, 3):
        msg = f"{image.dtype} pixels of {image.shape[0]} channels cannot be compressed; use encoded=false"
        raise RecordError(msg)
    suffix = ".jpg" if isinstance(record, bytes) and record.startswith(_JPEG_MAGIC) else ".png"
    _, compressed = cv2.imencode(suffix, np.ascontiguousarray(image.transpose(1, 2, 0)))
    return compressed.tobytes()


def _decodes_to(record: bytes, image: Image) -> bool:
    try:
        return np.array_equal(decode_image(record, color=None, where="record"), image)
    except DataSourceError:
        return False


def _to_gray(image: Image) -> Image:
    return chw_from_hwc(cv2.cvtColor(np.ascontiguousarray(image.transpose(1, 2, 0)), cv2.COLOR_BGR2GRAY))
