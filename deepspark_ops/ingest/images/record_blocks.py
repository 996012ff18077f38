"""Records to pixels, some at a time: what has to be asked of each small image is asked of sixty together.

A block in which nothing is wrong costs little more than its decoding. If anything is, its records are read once more,
one by one, and what is wrong is told of the one that it is about.
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
"""After so many blocks that had to be read again the others are read one by one from the beginning."""


@dataclass(frozen=True)
class RecordBlock:
    """Usable records of one kind, in their order.

    Attributes:
        numbers: Of the task's records.
        records: As read.
        images: Pictures, (H, W) or (H, W, C), of compressed records; (C, H, W) of arrays.
        compressed: What the shard keeps in place of pixels; Nones where it keeps pixels.
        are_pictures: Which of the two the images are.
        complaint: Of the decoder, of a block of one record; else there was none.
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
        messages: What the decoder says.
        shape: (C, H, W) that every image must have.
        dtype: ``uint8`` or ``float32``, likewise.
        encoded: Shards keep compressed images.
        reject: Is told number and error of what cannot be used.
    """

    read: ReadRecord
    recipe: PixelRecipe
    messages: DecoderMessages
    shape: tuple[int, int, int]
    dtype: str
    encoded: bool
    reject: Callable[[int, RecordError], None]

    def of(self, n_records: int, together: int) -> Iterator[RecordBlock]:
        """Yield records 0 to ``n_records - 1`` that can be used, up to ``together`` of them at a time."""
        in_vain = 0
        quick = self.recipe.quick_picture()
        for start in range(0, n_records, together):
            numbers = list(range(start, min(start + together, n_records)))
            block = self._together(numbers, quick) if in_vain < _MOST_IN_VAIN and together > 1 else None
            if block is not None:
                yield block
                continue
            in_vain += 1
            yield from filter(None, map(self._alone, numbers))

    def _together(self, numbers: list[int], quick: Callable[[bytes], Image]) -> RecordBlock | None:
        """Return a block of compressed records without a fault; None if there is an array or a fault among them."""
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
                self.messages.take()  # of the same images, if they were decoded again
        except RecordError:
            self.messages.take()
            return None
        return RecordBlock(numbers, records, images, compressed, are_pictures=True)

    def _alone(self, number: int) -> RecordBlock | None:
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
                    self.messages.take()  # of the same image, if it was decoded again to see whether its bytes may stay
        except RecordError as error:
            self.messages.take()
            self.reject(number, error)
            return None
        return RecordBlock([number], [record], [image], [compressed], is_file, complaint)

    def _picture_shape(self) -> tuple[int, ...] | None:
        """Return the shape of an image (C, H, W) as OpenCV has it; None if no picture can fit."""
        if np.dtype(self.dtype) != np.uint8:
            return None
        return self.shape[1:] if self.shape[0] == 1 else (*self.shape[1:], self.shape[0])

    def _check(self, image: Image, *, is_file: bool) -> None:
        if image.shape == (self._picture_shape() if is_file else self.shape) and image.dtype == self.dtype:
            return
        found = chw_from_hwc(image) if is_file else image
        if found.shape != self.shape:
            msg = (
                f"shape {found.shape} (channels, height, width), the first record has {self.shape};"
                " set resize_height and resize_width, or gray"
            )
        else:
            msg = f"{found.dtype} values, the first record has {self.dtype}"
        raise RecordError(msg)
