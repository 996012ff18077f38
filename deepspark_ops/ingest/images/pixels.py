"""From a record to the pixels that are stored (decode, gray, scale, resize), and whether its bytes may stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np

from caffe_import.errors import DataSourceError
from caffe_import.files.datum import (
    READ_FLAGS,
    Image,
    chw_from_hwc,
    decode_image,
    decode_picture,
    hwc_from_chw,
    resize_image,
    resize_picture,
)
from deepspark_ops.ingest.files.image_header import bytes_to_decode, picture_size, stored_picture
from deepspark_ops.ingest.records import RecordError
from deepspark_ops.shards.preprocessing import ImagePreprocessing, PixelSteps

_JPEG_MAGIC = b"\xff\xd8"
_UINT8 = np.dtype(np.uint8)
_MIB = 2**20
_LARGE_BYTES = 16 * _MIB
"""From here on a picture is decoded in place: what that saves is more than what it costs."""
_QUICK_BYTES, _QUICK_PIXELS = 256 * 1024, 1_000_000
"""File and header of a JPEG for whose decoding the least ``decode_mib`` is enough, progressive and turned too."""
_REDUCED = {
    8: (cv2.IMREAD_REDUCED_GRAYSCALE_8, cv2.IMREAD_REDUCED_COLOR_8),
    4: (cv2.IMREAD_REDUCED_GRAYSCALE_4, cv2.IMREAD_REDUCED_COLOR_4),
    2: (cv2.IMREAD_REDUCED_GRAYSCALE_2, cv2.IMREAD_REDUCED_COLOR_2),
}


@dataclass(frozen=True)
class PixelRecipe:
    """Does the steps of a dataset to its images.

    Attributes:
        steps: The steps.
        decode_mib: Memory in MiB that a compressed image may need, its file and its decoding together; None for any.
    """

    steps: PixelSteps = field(default_factory=PixelSteps)
    decode_mib: int | None = None

    def apply(self, record: Image | bytes) -> Image:
        """Return the record's pixels, (C, H, W), uint8 or float32.

        Raises:
            RecordError: Not an image, one that is too large, or a value above ``max_pixel``.
        """
        if isinstance(record, bytes):
            return chw_from_hwc(self.picture(record))
        image = _to_gray(record) if self.steps.gray and record.shape[0] == 3 else record
        if self.steps.max_pixel != 255:
            image = self._scale(image)
        return resize_image(image, self.steps.height, self.steps.width) if self.steps.height else image

    def picture(self, record: Image | bytes) -> Image:
        """Return what ``apply`` does as OpenCV has it, (H, W) or (H, W, C).

        A compressed image stays in that order until it has its size: another order of a large one would cost as much
        as the resize.
        """
        if not isinstance(record, bytes):
            return hwc_from_chw(self.apply(record))
        color = False if self.steps.gray else self.steps.decode_color
        divisor, flags = self._scaled(record, color) if self.steps.scaled_decoding and self.steps.height else (1, None)
        needed = bytes_to_decode(record, gray=color is False, divisor=divisor) or 0
        if self.decode_mib is not None and needed + len(record) > self.decode_mib * _MIB:
            raise RecordError(self._too_large(record, needed))
        try:
            picture = decode_picture(record, color=color, where="record", flags=flags, is_large=needed > _LARGE_BYTES)
        except DataSourceError as error:
            raise RecordError(str(error).removeprefix("record: ")) from error
        if self.steps.max_pixel != 255:
            picture = self._scale(picture)
        return resize_picture(picture, self.steps.height, self.steps.width) if self.steps.height else picture

    def _too_large(self, record: bytes, needed: int) -> str:
        rows, columns = picture_size(record) or (0, 0)
        mib = -(-(needed + len(record)) // _MIB)
        lead = f"give decode_mib={mib} or more, and the tasks memory for it"
        if record.startswith(_JPEG_MAGIC) and not self.steps.scaled_decoding:
            lead += ", or a resize with scaled_decoding"
        return (
            f"{columns}x{rows} pixels need {mib} MiB, {len(record) // _MIB} of them for the file; decode_mib="
            f"{self.decode_mib} allows no more than that for one image; {lead}"
        )

    def as_read(self, record: Image | bytes, images: ImagePreprocessing) -> Image:
        """Return a record's pixels as a net's data layer reads them from a dataset, (C, H, W), uint8 or float32.

        ``images`` says how the dataset keeps images, and how the layer decodes them; the steps are the recipe's.

        Raises:
            RecordError: As ``apply`` and ``compress``.
        """
        if not images.encoded:
            return self.apply(record)
        compressed = bytes(self.compress(record, self.picture(record)))
        try:
            return decode_image(compressed, color=images.read_color, where="record")
        except DataSourceError as error:
            raise RecordError(str(error).removeprefix("record: ")) from error

    def quick_picture(self) -> Callable[[bytes], Image]:
        """Return a function that does for a compressed record what ``picture`` does, with less around the decoder."""
        if self.steps.scaled_decoding or self.steps.max_pixel != 255:
            return self.picture
        flags = cv2.IMREAD_GRAYSCALE if self.steps.gray else READ_FLAGS[self.steps.decode_color]
        shape, size = (self.steps.height, self.steps.width), (self.steps.width, self.steps.height)
        as_array, decode, resize, uint8 = np.frombuffer, cv2.imdecode, cv2.resize, _UINT8

        def picture(record: bytes) -> Image:
            if record[:2] != _JPEG_MAGIC or len(record) > _QUICK_BYTES:
                return self.picture(record)  # which first checks the size and a PNG's last chunk
            claimed = picture_size(record)
            # Not by the file's size: of one that ends too early libjpeg makes all that the header claims.
            if claimed is None or claimed[0] * claimed[1] > _QUICK_PIXELS:
                return self.picture(record)
            try:
                decoded: Any = decode(as_array(record, uint8), flags)
                if decoded.dtype != uint8:
                    return self.picture(record)
            except (cv2.error, AttributeError):  # no image, and None has no dtype
                return self.picture(record)  # which raises the error
            pixels: Image = decoded if not self.steps.height or decoded.shape[:2] == shape else resize(decoded, size)
            return pixels

        return picture

    def _scaled(self, record: bytes, color: bool | None) -> tuple[int, int | None]:
        """Return divisor and OpenCV's flags for the smallest JPEG not below the wanted size; 1, None: the whole one."""
        stored = stored_picture(record) if record.startswith(_JPEG_MAGIC) else None
        if stored is None:
            return 1, None
        rows, columns = stored.shape[:2]
        if not stored.is_upright and color is not None:
            rows, columns = min(rows, columns), min(rows, columns)  # it may be turned
        for divisor, (of_gray, of_color) in _REDUCED.items():
            if rows // divisor >= self.steps.height and columns // divisor >= self.steps.width:
                is_gray = color is False or (color is None and len(stored.shape) == 2)
                flags = of_gray if is_gray else of_color
                return divisor, flags | cv2.IMREAD_IGNORE_ORIENTATION if color is None else flags
        return 1, None

    def compress(self, record: Image | bytes, picture: Image) -> bytes | memoryview:
        """Return ``picture`` compressed: the record's own bytes if they decode to exactly these pixels, else anew.

        convert_imageset keeps a file's bytes unless it resizes. A reader decodes without hints (as Caffe does by
        default), so bytes that would then give other pixels (a gray file among colour ones, a rotated photograph) are
        written anew: as JPEG if the record was one, else as PNG, which loses nothing.

        Raises:
            RecordError: Not 8-bit pixels of 1 or 3 channels.
        """
        if isinstance(record, bytes) and self._decodes_to(record, picture):
            return record
        channels = 1 if picture.ndim == 2 else picture.shape[2]
        if picture.dtype != np.uint8 or channels not in (1, 3):
            msg = f"{picture.dtype} pixels of {channels} channels cannot be compressed; use encoded=false"
            raise RecordError(msg)
        suffix = ".jpg" if isinstance(record, bytes) and record.startswith(_JPEG_MAGIC) else ".png"
        _, compressed = cv2.imencode(suffix, picture)
        return compressed.data

    def _decodes_to(self, record: bytes, picture: Image) -> bool:
        """Return whether a reader without hints would see ``picture``, which is decoded only if headers do not tell."""
        stored = stored_picture(record)
        if stored is not None and self.steps.max_pixel == 255:
            if stored.is_upright:
                return stored.shape == picture.shape
            if picture.shape[:2] not in (stored.shape[:2], stored.shape[1::-1]):
                return False
        try:
            return np.array_equal(decode_picture(record, color=None, where="record"), picture)
        except DataSourceError:
            return False

    def _scale(self, image: Image) -> Image:
        if image.max() > self.steps.max_pixel:
            msg = f"pixel value {image.max()} exceeds max_pixel={self.steps.max_pixel}"
            raise RecordError(msg)
        if image.dtype != np.uint8:
            return image * np.float32(255 / self.steps.max_pixel)
        # Rounded to the nearest level.
        return ((image.astype(np.uint32) * 510 + self.steps.max_pixel) // (2 * self.steps.max_pixel)).astype(np.uint8)


def _to_gray(image: Image) -> Image:
    return chw_from_hwc(cv2.cvtColor(hwc_from_chw(image), cv2.COLOR_BGR2GRAY))
