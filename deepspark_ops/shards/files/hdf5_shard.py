"""Writes an HDF5 shard for Caffe's HDF5Data layer, with reproducible bytes."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from caffe_import.files.datum import Image
from deepspark_ops.run_paths import write_whole
from deepspark_ops.stores.store_path import DataPath

_BUFFER_BYTES = 512 * 1024
"""Size of a stored piece of rows: below HDF5's default cache of 1 MiB, so a batch reads a piece once."""


def write_hdf5_shard(path: Path, samples: Iterable[tuple[Image, int]], sample_shape: tuple[int, int, int]) -> int:
    """Write ``data`` (N, C, H, W) and ``label`` (N,), float32, whole or not at all.

    Args:
        path: The shard's file, ``.h5``.
        samples: Images (C, H, W) and labels.
        sample_shape: (C, H, W).

    Returns:
        N. Without a sample no file is written.
    """
    n_rows = 0
    rows = max(1, _BUFFER_BYTES // (4 * int(np.prod(sample_shape))))
    with _new_file(path) as handle:
        data = _growing(handle, "data", sample_shape, rows)
        label = _growing(handle, "label", (), rows)
        images = np.empty((rows, *sample_shape), np.float32)
        labels = np.empty(rows, np.float32)
        filled = 0
        for image, number in samples:
            images[filled], labels[filled] = image, number
            filled += 1
            if filled == rows:
                n_rows = _append(data, label, images, labels, n_rows)
                filled = 0
        n_rows = _append(data, label, images[:filled], labels[:filled], n_rows)
    if not n_rows:
        path.unlink()
    return n_rows


def write_hdf5_columns(
    path: Path, columns: Mapping[str, npt.NDArray[Any]], order: npt.NDArray[np.int64] | None = None
) -> None:
    """Write columns of equal length, e.g. ``data`` (N, D) and ``label`` (N,), whole or not at all.

    Args:
        path: The shard's file, ``.h5``.
        columns: Numbers, or texts as bytes of a fixed length (UTF-8).
        order: (N,) row of the columns for each row of the file; the copy of the ordered rows is small.
    """
    with _new_file(path) as handle:
        for name, values in columns.items():
            rows = max(1, _BUFFER_BYTES // max(1, values[:1].nbytes))
            is_text = values.dtype.kind == "S"
            dtype = h5py.string_dtype("utf-8", values.dtype.itemsize) if is_text else values.dtype
            chunks = (min(rows, len(values)), *values.shape[1:])
            data = handle.create_dataset(name, values.shape, dtype, chunks=chunks, track_times=False)
            for start in range(0, len(values), chunks[0]):
                to = slice(start, start + chunks[0])
                data[to] = np.ascontiguousarray(values[to] if order is None else values[order[to]]).view(dtype)


@contextmanager
def _new_file(path: Path) -> Iterator[Any]:
    """Yield an open file; after the block the file is at ``path``, whole or not at all.

    Raises:
        OSError: The file could not be written.
    """
    with write_whole(path) as temporary:
        with _PatientFile(temporary) as file:
            # The oldest file version that fits is h5py's default, which Caffe's HDF5 1.8 reads.
            with h5py.File(file, "w", track_order=False) as handle:
                yield handle
            file.raise_error(path)
        temporary.chmod(0o644)


class _PatientFile(io.RawIOBase):
    """A file for HDF5 that keeps the error of a full disk until the close: HDF5 crashes if a write fails at the close.

    Bytes and speed are those of a plain file.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w+b", buffering=0)
        self._error: OSError | None = None

    def raise_error(self, path: Path) -> None:
        """Raise the kept error with ``path`` as the file's name."""
        if self._error is not None:
            raise OSError(self._error.errno, self._error.strerror, str(path)) from self._error

    def write(self, data: Any, /) -> int:
        unwritten = memoryview(data).cast("B")
        n_bytes = len(unwritten)
        try:
            while unwritten and self._error is None:
                unwritten = unwritten[self._file.write(unwritten) :]
        except OSError as error:
            self._error = error
        return n_bytes

    def readinto(self, buffer: Any, /) -> int:
        n_read = self._file.readinto(buffer)
        if self._error is not None and n_read < len(buffer):  # bytes that were not written
            buffer[n_read:] = bytes(len(buffer) - n_read)
            return len(buffer)
        return n_read

    def truncate(self, size: int | None = None, /) -> int:
        try:
            return self._file.truncate(size)
        except OSError as error:
            self._error = error
            return size or 0

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
        super().close()


def hdf5_list(files: Sequence[DataPath]) -> str:
    """Return the list for an HDF5Data layer's ``source``, with absolute paths: Caffe may run in any folder."""
    return "".join(f"{file.resolve()}\n" for file in files)


def _growing(handle: Any, name: str, shape: tuple[int, ...], rows: int) -> Any:
    return handle.create_dataset(
        name, (0, *shape), np.float32, maxshape=(None, *shape), chunks=(rows, *shape), track_times=False
    )


def _append(data: Any, label: Any, images: Image, labels: Image, n_rows: int) -> int:
    stop = n_rows + len(labels)
    data.resize(stop, axis=0)
    label.resize(stop, axis=0)
    data[n_rows:stop] = images
    label[n_rows:stop] = labels
    return stop
