"""Caffe's Datum records: bytes of a sample to an array and back. Pixels are BGR, channels first, as in Caffe.

Source: BVLC Caffe @9b89154, src/caffe/util/io.cpp (ReadImageToDatum, CVMatToDatum, DecodeDatumToCVMat).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

import cv2
import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from caffe_import.errors import DataSourceError
from caffe_import.files.blob_proto import varint
from caffe_import.proto import caffe_pb2

READ_FLAGS = {None: cv2.IMREAD_UNCHANGED, True: cv2.IMREAD_COLOR, False: cv2.IMREAD_GRAYSCALE}
"""OpenCV's flags for ``color`` of ``decode_datum``."""
_UINT8 = np.dtype(np.uint8)
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_CHUNK_BYTES = 12  # length, kind and checksum
_MAX_AFTER_DATA = 13
"""Two tags, a label of at most ten bytes, one byte."""
_SHORT_AFTER_DATA, _ONE_BYTE = 4, 0x80
"""So many bytes with a label below the second number."""
_SMALL_PIXELS = 64 * 64
_KEPT_LABELS = 4_096
"""Forms of a record's end that are remembered; labels of a regression are as many as samples."""
Image = npt.NDArray[Any]
"""One image, (C, H, W), uint8 or float32, BGR if it has three channels."""


def encode_datum(image_chw: Image, label: int) -> bytes:
    """Return the serialized Datum of a raw image, byte for byte what ``convert_imageset`` stores.

    Args:
        image_chw: Shape (C, H, W), uint8 (0..255) or float32. A float image goes to ``float_data``.
        label: Class index; Datum keeps an int32.
    """
    if image_chw.dtype == np.uint8:
        return _before_pixels(image_chw.shape) + image_chw.tobytes() + _after_data(label, 0)
    channels, height, width = image_chw.shape
    datum = caffe_pb2.Datum(channels=channels, height=height, width=width, label=label)
    datum.float_data.extend(image_chw.astype(np.float32, copy=False).ravel())
    datum.encoded = False
    return datum.SerializeToString()


def encode_datum_jpeg(compressed: bytes | memoryview, label: int) -> bytes:
    """Return the serialized Datum of a compressed image (JPEG, PNG, anything OpenCV decodes)."""
    return b"".join((b"\x22", varint(len(compressed)), compressed, _after_data(label, 1)))


class PixelDatums:
    """Makes Datums of raw images of equal shape by hand, in a single buffer.

    protobuf takes 40 times as long for 256x256 pixels: protobuf copies the pixels twice, into new memory each time.
    """

    def __init__(self, shape: tuple[int, int, int], most: int) -> None:
        """Prepare room.

        Args:
            shape: (C, H, W) of the images, which are uint8.
            most: Images at a time.
        """
        channels, height, width = shape
        n_values, head = channels * height * width, _before_pixels(shape)
        self._end = len(head) + n_values
        n_bytes = self._end + _MAX_AFTER_DATA
        buffer = np.zeros((most, n_bytes), np.uint8)
        buffer[:, : len(head)] = np.frombuffer(head, np.uint8)
        self._rows = [row.data for row in buffer]
        self._short_rows = [row[: self._end + _SHORT_AFTER_DATA] for row in self._rows]
        self._short_after = buffer[:, self._end : self._end + _SHORT_AFTER_DATA]
        strides = (n_bytes, height * width, width, 1)
        self._planes = np.ndarray((most, *shape), np.uint8, buffer, offset=len(head), strides=strides)

    def of_images(self, images: Image) -> PixelDatums:
        """Take in images, (N, C, H, W), in place of earlier images; return the writer."""
        self._planes[: len(images)] = images
        return self

    def of_pictures(self, pictures: Image) -> PixelDatums:
        """Take in images as OpenCV has them, (N, H, W) or (N, H, W, C), likewise."""
        planes = self._planes[: len(pictures)]
        if pictures.ndim == 3:
            planes[:, 0] = pictures
        elif len(pictures) == 1:
            cv2.split(pictures[0], list(planes[0]))  # in place, see chw_from_hwc
        else:
            n, height, width, channels = pictures.shape
            for i, plane in enumerate(cv2.split(pictures.reshape(n * height, width, channels))):
                planes[:, i] = plane.reshape(n, height, width)
        return self

    def with_labels(self, labels: Sequence[int]) -> list[memoryview]:
        """Return the Datums of the images, a Datum for each label; the Datums stay valid until the next images."""
        if labels and 0 <= min(labels) and max(labels) < _ONE_BYTE:
            # All at once: each label takes a byte.
            self._short_after[: len(labels)] = (0x28, 0, 0x38, 0)
            self._short_after[: len(labels), 1] = labels
            return self._short_rows[: len(labels)]
        return [self._with_label(i, label) for i, label in enumerate(labels)]

    def _with_label(self, index: int, label: int) -> memoryview:
        label_bytes = _after_data(label, 0)
        stop = self._end + len(label_bytes)
        row = self._rows[index]
        row[self._end : stop] = label_bytes
        return row[:stop]


class PixelRecords:
    """Reads Datums of raw images of equal shape by hand, as Caffe's tools and ``encode_datum`` write them.

    Such Datums begin with the same bytes, and the fields behind the pixels have few forms. protobuf reads each such
    Datum once and takes ten times as long. Not thread-safe.

    Attributes:
        shape: (C, H, W) of the images, which are uint8.
    """

    def __init__(self, shape: tuple[int, int, int]) -> None:
        """Begin without a known form."""
        self.shape = shape
        self._head = _before_pixels(shape)
        self._end = len(self._head) + shape[0] * shape[1] * shape[2]
        self._labels: dict[bytes, int] = {}

    def read(self, record: memoryview, pixels: memoryview) -> int | None:
        """Write a record's pixels, C * H * W bytes, into ``pixels`` and return its label.

        Returns:
            None, and nothing is written, for any other record: one of another shape, compressed or damaged.
        """
        start, end = len(self._head), self._end
        if record[:start] != self._head:
            return None
        label_bytes = bytes(record[end : end + _MAX_AFTER_DATA + 1])
        label = self._labels.get(label_bytes)
        if label is None:
            label = _label_after_pixels(label_bytes) if len(record) >= end else None
            if label is None:
                return None
            if len(self._labels) < _KEPT_LABELS:
                self._labels[label_bytes] = label
        if len(record) != end + len(label_bytes):
            return None
        pixels[:] = record[start:end]
        return label


def _label_after_pixels(label_bytes: bytes) -> int | None:
    """Return the label behind the pixels; None with other fields behind the pixels."""
    if len(label_bytes) > _MAX_AFTER_DATA:
        return None
    try:
        fields = caffe_pb2.Datum.FromString(label_bytes)
    except DecodeError:
        return None
    allowed_fields = {"label", "encoded"}
    is_plain = not fields.encoded and allowed_fields.issuperset(field.name for field, _ in fields.ListFields())
    return fields.label if is_plain else None


def _before_pixels(shape: tuple[int, int, int]) -> bytes:
    """Return the fields channels (1), height (2) and width (3), and the tag and length of data (4)."""
    channels, height, width = map(varint, shape)
    n_bytes = varint(shape[0] * shape[1] * shape[2])
    return b"\x08" + channels + b"\x10" + height + b"\x18" + width + b"\x22" + n_bytes


@lru_cache(maxsize=4096)
def _after_data(label: int, encoded: int) -> bytes:
    """Return the fields label (5) and encoded (7).

    Raises:
        ValueError: Not an int32.
    """
    if not -(2**31) <= label < 2**31:
        msg = f"label {label} is outside of int32"
        raise ValueError(msg)
    return b"\x28" + varint(int(label) % 2**64) + bytes((0x38, encoded))


def parse_datum(record: bytes | memoryview, *, where: str) -> caffe_pb2.Datum:
    """Return the message of one record.

    Raises:
        DataSourceError: The bytes are no Datum; ``where`` is the beginning of the message.
    """
    try:
        # The parser takes any buffer, so a record is not copied out of a memory map; its type says bytes.
        return caffe_pb2.Datum.FromString(cast(bytes, record))
    except DecodeError as error:
        msg = f"{where}: {len(record):,} bytes that are no Caffe Datum; is this a database of images?"
        raise DataSourceError(msg) from error


def decode_datum(record: bytes | memoryview, *, color: bool | None = None, where: str = "datum") -> tuple[Image, int]:
    """Return the image and label of one serialized Datum.

    Args:
        record: Serialized Datum: raw bytes, float_data, or a compressed image.
        color: How a compressed image is read: None as it is (Caffe's default), True as BGR (``force_color``), False
            as gray (``force_gray``). Raw records are returned as they are, as in Caffe.
        where: Names the record in errors.

    Returns:
        ``(image, label)``; image is (C, H, W), uint8 or float32. It may be read-only and share memory with the parsed
        message, never with ``record``.

    Raises:
        DataSourceError: Not a Datum, not an image, or fewer values than its shape says.
    """
    datum = parse_datum(record, where=where)
    if datum.encoded:
        return decode_image(datum.data, color=color, where=where), datum.label
    shape = (datum.channels, datum.height, datum.width)
    if datum.data:
        values: Image = np.frombuffer(datum.data, np.uint8)
    else:
        values = np.fromiter(datum.float_data, np.float32, len(datum.float_data))
    if min(shape) < 1:
        msg = f"{where}: shape {shape}: channels, height and width must be at least 1; make the database again"
        raise DataSourceError(msg)
    if values.size != shape[0] * shape[1] * shape[2]:
        msg = f"{where}: shape {shape} needs {shape[0] * shape[1] * shape[2]:,} values, the record has {values.size:,}"
        raise DataSourceError(msg)
    return values.reshape(shape), datum.label


def decode_image(compressed: bytes, *, color: bool | None, where: str) -> Image:
    """Return a compressed image as (C, H, W) uint8, BGR; ``color`` as in ``decode_datum``.

    Raises:
        DataSourceError: OpenCV cannot read the bytes, or they hold more than eight bits a channel.
    """
    return chw_from_hwc(decode_picture(compressed, color=color, where=where))


def decode_picture(
    compressed: bytes, *, color: bool | None, where: str, flags: int | None = None, is_large: bool = False
) -> Image:
    """Return a compressed image in OpenCV's order, (H, W) or (H, W, C), which resizing needs.

    Args:
        compressed: A file's bytes.
        color: As in ``decode_datum``.
        where: Names the image in errors.
        flags: Of OpenCV's imdecode, in place of those that ``color`` stands for.
        is_large: Decode into the array that is returned: half the memory of imdecode, which copies, and two calls of
            the system more.

    Raises:
        DataSourceError: As ``decode_image``.
    """
    try:
        flags = READ_FLAGS[color] if flags is None else flags
        is_there = compressed and not (compressed[: len(_PNG)] == _PNG and _ends_in_a_chunk(compressed))
        decode = _decode_in_place if is_large else _decode
        image = decode(compressed, flags) if is_there else None
    except cv2.error as error:
        # More than 2^30 pixels: OpenCV's guard against a wrong header.
        msg = f"{where}: OpenCV refuses the image: {error}"
        raise DataSourceError(msg) from error
    if image is None:
        msg = f"{where}: {len(compressed):,} bytes that are no image OpenCV can read (JPEG, PNG, BMP, ...)"
        raise DataSourceError(msg)
    if image.dtype != _UINT8:
        msg = f"{where}: pixels are {image.dtype}; Caffe reads images of 8 bits a channel"
        raise DataSourceError(msg)
    rgb_image: Image = image
    return rgb_image


def _decode(compressed: bytes, flags: int) -> Image | None:
    picture: Any = cv2.imdecode(np.frombuffer(compressed, np.uint8), flags)
    return cast("Image | None", picture)


def _decode_in_place(compressed: bytes, flags: int) -> Image | None:
    # Only imread takes an array to decode into, and only from a file: one in memory.
    handle = os.memfd_create("image")
    try:
        with open(handle, "wb", closefd=False) as file:
            file.write(compressed)
        picture: Any = cv2.imread(f"/proc/self/fd/{handle}", None, flags)
    finally:
        os.close(handle)
    return cast("Image | None", picture)


def _ends_in_a_chunk(png: bytes) -> bool:
    """Return whether a chunk of a PNG claims more bytes than follow: OpenCV would first make room for up to 2 GiB."""
    at, end = len(_PNG), len(png)
    while at + _PNG_CHUNK_BYTES <= end:
        if png[at + 4 : at + 8] == b"IEND":
            return False
        at += _PNG_CHUNK_BYTES + int.from_bytes(png[at : at + 4], "big")
    return at > end


def resize_image(image_chw: Image, height: int, width: int) -> Image:
    """Resize as Caffe does: bilinear, half-pixel centres, no antialiasing; (C, H, W) in and out, dtype kept."""
    if image_chw.shape[1:] == (height, width):
        return image_chw
    return chw_from_hwc(resize_picture(hwc_from_chw(image_chw), height, width))


def resize_picture(picture: Image, height: int, width: int) -> Image:
    """Resize as ``resize_image``, (H, W) or (H, W, C) in and out."""
    return picture if picture.shape[:2] == (height, width) else cv2.resize(picture, (width, height))


def chw_from_hwc(image: Image) -> Image:
    """Return OpenCV's (H, W) or (H, W, C) image as a contiguous (C, H, W) array."""
    if image.ndim == 2:
        return image[np.newaxis]
    if image.shape[0] * image.shape[1] <= _SMALL_PIXELS:
        return np.ascontiguousarray(image.transpose(2, 0, 1))
    # A quarter of the time of numpy's copy, but for the call; OpenCV writes into arrays that fit.
    planes = np.empty((image.shape[2], *image.shape[:2]), image.dtype)
    cv2.split(image, list(planes))
    return planes


def hwc_from_chw(image_chw: Image) -> Image:
    """Return a (C, H, W) image in OpenCV's order: (H, W), or contiguous (H, W, C)."""
    if image_chw.shape[0] == 1:
        return np.asarray(image_chw[0])
    return np.asarray(cv2.merge(list(image_chw)))
