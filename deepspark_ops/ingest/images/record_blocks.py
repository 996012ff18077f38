"""Pixels from records, block by block: checks run on sixty small images at a time.

A block without an error costs little more than the decoding. The records of a block with an error are read again, one
by one, so that the error names the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from caffe_import.files.datum import Image, chw_from_hwc, hwc_from_chw
from deepspark_ops.ingest.images.decoder_messages import DecoderMessages
from deepspark_ops.ingest.images.pixels import PixelRecipe
from deepspark_ops.ingest.records import ReadRecord, RecordError

_MOST_IN_VAIN: Final = 4
"""Number of blocks with an error after which all records are read one by one."""


@dataclass(frozen=True)
class RecordBlock:
    """Usable records of one kind, in order.

    Attributes:
        numbers: Numbers of the task's records.
        records: Records of the reader.
        images: Pictures, (H, W) or (H, W, C), for compressed records; (C, H, W) for arrays.
        compressed: Stored bytes in place of pixels; None for stored pixels.
        are_pictures: Whether the images are pictures.
        complaint: Message of the decoder about a single record; empty for a block of several records.
    """

    numbers: list[int]
    records: list[Any]
    images: list[Image]
    compressed: list[bytes | memoryview | None]
    are_pictures: bool
    complaint: str = ""


@dataclass(frozen=True)
class RecordBlocks:
    """Reads all records of a task.

    Attributes:
        read: Returns a record.
        recipe: From record to pixels.
        messages: Messages of the decoder.
        shape: (C, H, W) of every image.
        dtype: ``uint8`` or ``float32``, type of every image.
        encoded: Whether shards keep compressed images.
        reject: Called with number and error of an unusable record.
    """

    read: ReadRecord
    recipe: PixelRecipe
    messages: DecoderMessages
    shape: tuple[int, int, int]
    dtype: str
    encoded: bool
    reject: Callable[[int, RecordError], None]

    def of(self, n_records: int, together: int) -> Iterator[RecordBlock]:
        """Yield the usable records among 0 to ``n_records - 1``, at most ``together`` at a time."""
        in_vain = 0
        quick = self.recipe.quick_picture()
        for start in range(0, n_records, together):
            numbers = list(range(start, min(start + together, n_records)))
            block = self._together(numbers, quick) if in_vain < _MOST_IN_VAIN and together > 1 else None
            if block is not None:
                yield block
                continue
            in_vain += 1
            yield from filter(None, map(self._single, numbers))

    def _together(self, numbers: list[int], quick: Callable[[bytes], Image]) -> RecordBlock | None:
        """Return a block of compressed records; None if a record is an array or has an error."""
        shape = self._picture_shape()
        try:
            records: list[Any] = list(map(self.read, numbers))
            if not all([type(record) is bytes for record in records]):
                return None
            images = list(map(quick, records))
            if self.messages.take() or not all([image.shape == shape for image in images]):
                return None
            compressed: list[bytes | memoryview | None] = [None] * len(numbers)
            if self.encoded:
                compressed = list(map(self.recipe.compress, records, images))
                self.messages.take()  # of the same images, if the images were decoded again
        except RecordError:
            self.messages.take()
            return None
        return RecordBlock(numbers, records, images, compressed, are_pictures=True)

    def _single(self, number: int) -> RecordBlock | None:
        try:
            record = self.read(number)
            is_file = isinstance(record, bytes)
            image = self.recipe.picture(record) if is_file else self.recipe.apply(record)
            complaint = self.messages.take() if is_file else ""
            self._check(image, is_file=is_file)
            compressed = None
            if self.encoded:
                compressed = self.recipe.compress(record, image if is_file else hwc_from_chw(image))
                if compressed is not record:
                    self.messages.take()  # of the same image, if a second decoding compared the bytes
        except RecordError as error:
            self.messages.take()
            self.reject(number, error)
            return None
        return RecordBlock([number], [record], [image], [compressed], is_file, complaint)

    def _picture_shape(self) -> tuple[int, ...] | None:
        """Return OpenCV's shape of an image (C, H, W); None if no picture can fit."""
        if np.dtype(self.dtype) != np.uint8:
            return None
        return self.shape[1:] if self.shape[0] == 1 else (*self.shape[1:], self.shape[0])

    def _check(self, image: Image, *, is_file: bool) -> None:
        if image.shape == (self._picture_shape() if is_file else self.shape) and image.dtype == self.dtype:
            return
        pixels = chw_from_hwc(image) if is_file else image
        if pixels.shape != self.shape:
            msg = (
                f"shape {pixels.shape} (channels, height, width), the first record has {self.shape};"
                " set resize_height and resize_width, or gray"
            )
        else:
            msg = f"{pixels.dtype} values, the first record has {self.dtype}"
        raise RecordError(msg)
