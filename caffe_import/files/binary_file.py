"""Opens Caffe's binary files (protobuf or HDF5) and words the errors of unreadable files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import TypeVar

import h5py
import numpy as np
from google.protobuf.message import DecodeError, Message

from caffe_import.errors import CaffeImportError, WeightsError
from caffe_import.file_access.regular_file import open_regular, regular_bytes
from caffe_import.files.hdf5_file import open_hdf5
from caffe_import.net.layer_registry import Shape

_M = TypeVar("_M", bound=Message)

MAX_BYTES = 2**31 - 1
"""Protobuf reads no larger message."""

HDF5_ERRORS = (OSError, RuntimeError, KeyError, TypeError, ValueError)
"""What the library raises for damaged files, besides its own OSError."""

_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_MAX_CHUNK_BYTES = 2**24
_MAX_EXPANSION = 1100  # deflate cannot shrink by more than 1032; a larger claim is damage, and would use up the memory


def is_hdf5(path: Path, *, file_kind: str) -> bool:
    """Return whether the file begins as HDF5 does; ``file_kind`` is the kind of file for the error.

    Raises:
        WeightsError: The file cannot be opened.
    """
    with _explained(path, file_kind), open_regular(path) as handle:
        return handle.read(len(_HDF5_SIGNATURE)) == _HDF5_SIGNATURE


def read_message(path: Path, message: _M, *, file_kind: str) -> _M:
    """Parse a binary protobuf file into ``message`` and return it.

    Raises:
        WeightsError: The file cannot be read, is empty, too large or damaged.
    """
    with _explained(path, file_kind):
        size = path.stat().st_size
        if size > MAX_BYTES:
            msg = f"{path}: {size:,} bytes; protobuf reads at most {MAX_BYTES:,}: use the HDF5 form"
            raise WeightsError(msg)
        content = regular_bytes(path, max_bytes=MAX_BYTES)
    if not content:
        msg = f"{path}: is empty; {file_kind} was expected"
        raise WeightsError(msg)
    try:
        message.ParseFromString(content)
    except DecodeError as error:
        msg = f"{path}: is damaged, cut off or not {file_kind}: {error}"
        raise WeightsError(msg) from error
    return message


@contextmanager
def opened_hdf5(path: Path, *, file_kind: str) -> Iterator[h5py.File]:
    """Yield the HDF5 file, open for reading; errors of the library while it is open become WeightsError.

    Raises:
        WeightsError: It is damaged, or no HDF5 file.
        DataSourceError: It leads into other files.
    """
    try:
        with open_hdf5(path) as file:
            yield file
    except CaffeImportError:
        raise
    except HDF5_ERRORS as error:
        msg = f"{path}: is damaged, cut off or not {file_kind}: {error}"
        raise WeightsError(msg) from error


def float_dataset(
    item: object, *, where: str, is_read: Callable[[Shape], bool] = lambda _: True
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Return a numeric dataset as float32 in its own shape.

    Args:
        item: What a name of the file leads to.
        where: Begins the error.
        is_read: Whether data of a shape are wanted. Others are not read, since a compressed file may grow a
            thousandfold: the answer has their shape, zeros, and takes no memory.

    Raises:
        WeightsError: It is a group, not numeric, or claims more than the file can hold.
    """
    if not isinstance(item, h5py.Dataset) or item.dtype.kind not in "fiu" or item.shape is None:
        msg = f"{where}: a dataset of numbers was expected"
        raise WeightsError(msg)
    claimed = prod(item.shape) * item.dtype.itemsize
    if claimed > _MAX_EXPANSION * item.id.get_storage_size():
        msg = f"{where}: claims shape {item.shape}, stores {item.id.get_storage_size():,} bytes; the file is damaged"
        raise WeightsError(msg)
    if not is_read(item.shape):
        return np.broadcast_to(np.float32(0), item.shape)
    chunk_bytes = prod(item.chunks or ()) * item.dtype.itemsize
    if chunk_bytes > max(claimed, _MAX_CHUNK_BYTES):  # the library unpacks whole chunks
        msg = f"{where}: has shape {item.shape}, stored in parts of {item.chunks}; the file is damaged"
        raise WeightsError(msg)
    return np.asarray(item[()], dtype=np.float32)


@contextmanager
def _explained(path: Path, file_kind: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        msg = f"{path}: cannot be read: {error.strerror or error}; {file_kind} was expected"
        raise WeightsError(msg) from error
