"""BlobProto messages to arrays and back: current and legacy shapes, float and double data."""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt

from caffe_import.errors import WeightsError
from caffe_import.net.layer_registry import Shape
from caffe_import.net.shapes.axes import MAX_AXES
from caffe_import.proto import caffe_pb2

FloatArray = npt.NDArray[np.float32]

_DATA_TAG = b"\x2a"  # field 5, length-delimited
_LEGACY_FIELDS = ("num", "channels", "height", "width")


def array_from_blob(blob: caffe_pb2.BlobProto, *, where: str) -> FloatArray:
    """Return the blob's values, float32, in the blob's shape (four axes with the legacy num/channels/height/width).

    Args:
        blob: Message; ``double_data`` is taken if there is any, else ``data`` (Blob::FromProto).
        where: Begins the error, e.g. ``m.caffemodel: layer "ip1" blob 0``.

    Raises:
        WeightsError: The number of values is not that of the shape.
    """
    with np.errstate(over="ignore"):  # a double beyond float32 becomes infinite, as C's cast
        values: FloatArray = np.array(blob.double_data if len(blob.double_data) > 0 else blob.data, dtype=np.float32)
    shape = shape_of_blob(blob)
    check_shape(shape, values.size, where=where)
    return values.reshape(shape)


def check_shape(shape: Shape, n_values: int, *, where: str) -> None:
    """Check a blob's shape against the number of values; arguments as of ``array_from_blob``.

    Raises:
        WeightsError: It does not, or Caffe allows no blob of so many axes.
    """
    if len(shape) > MAX_AXES:
        msg = f"{where}: a shape of {len(shape):,} axes, allowed: at most {MAX_AXES}; the file is damaged"
        raise WeightsError(msg)
    if any(extent < 0 for extent in shape) or prod(shape) != n_values:
        msg = f"{where}: {n_values:,} values for shape {shape}; the file is damaged"
        raise WeightsError(msg)


def shape_of_blob(blob: caffe_pb2.BlobProto) -> Shape:
    """Return the blob's shape; the legacy fields win where any is set (Blob::FromProto)."""
    if any(blob.HasField(name) for name in _LEGACY_FIELDS):
        return (blob.num, blob.channels, blob.height, blob.width)
    return tuple(blob.shape.dim)


def blob_from_array(array: FloatArray) -> caffe_pb2.BlobProto:
    """Return the array as Caffe's Blob::ToProto writes it: float data and shape, without axes no shape field."""
    blob = caffe_pb2.BlobProto()
    # The packed field in wire form: appending 60 million Python floats takes seconds and gigabytes.
    raw = np.ascontiguousarray(array, dtype="<f4").tobytes()
    blob.MergeFromString(_DATA_TAG + varint(len(raw)) + raw)
    if array.ndim > 0:
        blob.shape.dim.extend(array.shape)
    return blob


def varint(value: int) -> bytes:
    r"""Return protobuf's variable-length form of an unsigned number.

    Example:
        >>> varint(300)
        b'\xac\x02'
    """
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def has_shape(stored: Shape, expected: Shape) -> bool:
    """Return whether a stored shape fits: equal, or the legacy four axes with ones in front (Blob::ShapeEquals).

    Example:
        >>> has_shape((1, 1, 3, 64), (3, 64)), has_shape((64, 3), (3, 64))
        (True, False)
    """
    if stored == expected:
        return True
    return len(stored) == 4 and len(expected) < 4 and stored == (1,) * (4 - len(expected)) + expected
