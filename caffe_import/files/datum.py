"""Caffe's Datum records: bytes of one sample to an array and back. Pixels are BGR, channels first, as Caffe keeps them.

Source: BVLC Caffe @9b89154, src/caffe/util/io.cpp (ReadImageToDatum, CVMatToDatum, DecodeDatumToCVMat).
"""

from __future__ import annotations

from typing import Any, cast

import cv2
import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from caffe_import.errors import DataSourceError
from caffe_import.proto import caffe_pb2

Image = npt.NDArray[Any]
"""One image, (C, H, W), uint8 or float32, BGR if it has three channels."""


def encode_datum(image_chw: Image, label: int) -> bytes:
    """Return the serialized Datum of a raw image, byte for byte what ``convert_imageset`` stores.

    Args:
        image_chw: Shape (C, H, W), uint8 (0..255) or float32. A float image goes to ``float_data``.
        label: Class index; Datum keeps an int32.
    """
    channels, height, width = image_chw.shape
    datum = caffe_pb2.Datum(channels=channels, height=height, width=width, label=label)
    if image_chw.dtype == np.uint8:
        datum.data = image_chw.tobytes()
    else:
        datum.float_data.extend(image_chw.astype(np.float32, copy=False).ravel())
    datum.encoded = False
    return datum.SerializeToString()


def encode_datum_jpeg(compressed: bytes, label: int) -> bytes:
    """Return the serialized Datum of an image that stays compressed (JPEG, PNG, anything OpenCV decodes)."""
    return caffe_pb2.Datum(data=compressed, label=label, encoded=True).SerializeToString()


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
    flag = {None: cv2.IMREAD_UNCHANGED, True: cv2.IMREAD_COLOR, False: cv2.IMREAD_GRAYSCALE}[color]
    try:
        image = cv2.imdecode(np.frombuffer(compressed, np.uint8), flag) if compressed else None
    except cv2.error as error:
        # More than 2^30 pixels: OpenCV's guard against a wrong header.
        msg = f"{where}: OpenCV refuses the image: {error}"
        raise DataSourceError(msg) from error
    if image is None:
        msg = f"{where}: {len(compressed):,} bytes that are no image OpenCV can read (JPEG, PNG, BMP, ...)"
        raise DataSourceError(msg)
    if image.dtype != np.uint8:
        msg = f"{where}: pixels are {image.dtype}; Caffe reads images of 8 bits a channel"
        raise DataSourceError(msg)
    return chw_from_hwc(image)


def resize_image(image_chw: Image, height: int, width: int) -> Image:
    """Resize as Caffe does: bilinear, half-pixel centres, no antialiasing; (C, H, W) in and out, dtype kept."""
    if image_chw.shape[1:] == (height, width):
        return image_chw
    return chw_from_hwc(cv2.resize(np.ascontiguousarray(image_chw.transpose(1, 2, 0)), (width, height)))


def chw_from_hwc(image: Image) -> Image:
    """Return OpenCV's (H, W) or (H, W, C) image as a contiguous (C, H, W) array."""
    if image.ndim == 2:
        return image[np.newaxis]
    return np.ascontiguousarray(image.transpose(2, 0, 1))
