"""The HDF5 files in the list of an HDF5Data layer: a dataset per top, rows of all files as a single sequence."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from caffe_import.data.sample_source import Column, check_range
from caffe_import.errors import DataSourceError
from caffe_import.file_access.allowed_roots import check_named_path, is_refused, may_quote
from caffe_import.file_access.text_file import listed_files, read_text_file
from caffe_import.files.binary_file import HDF5_ERRORS
from caffe_import.files.hdf5_file import data_set, open_hdf5
from caffe_import.net.layer_registry import Shape


class Hdf5Source:
    """Rows of several HDF5 files in order. Not thread-safe; one file is open at a time.

    Caffe reads rows as float32, whatever the file's type, and reads on over file borders.

    Attributes:
        is_transformed: False: Caffe's HDF5Data layer applies no transform.
    """

    is_transformed = False

    def __init__(self, files: tuple[Path, ...], tops: tuple[str, ...], *, listed_in: Path | None = None) -> None:
        """Remember what to read; nothing is opened yet.

        Args:
            files: At least one.
            tops: Names of datasets, one per top.
            listed_in: The list that names the files. Of a list that may not be quoted no message shows a word.
        """
        self._files = files
        self._hides_words = listed_in is not None and not may_quote(listed_in)
        self._shown = [
            f"{listed_in}: file {number} of the list (not shown)" if self._hides_words else str(path)
            for number, path in enumerate(files, start=1)
        ]
        self._tops = tops
        self._stops: list[int] = []
        self._shapes: tuple[Shape, ...] = ()
        self._open: tuple[int, Any] | None = None

    def __len__(self) -> int:
        """Return the rows of all files together."""
        self._survey()
        return self._stops[-1]

    def sample_shapes(self) -> tuple[Shape, ...]:
        """Return each dataset's shape without its first axis."""
        self._survey()
        return self._shapes

    def read(self, start: int, count: int) -> list[Column]:
        """Return one float32 array (count, ...) per top.

        Raises:
            DataSourceError: A file is damaged.
        """
        check_range(start, count, len(self))
        out: list[Column] = [np.empty((count, *shape), np.float32) for shape in self._shapes]
        filled = 0
        while filled < count:
            index = bisect_right(self._stops, start + filled)
            row = start + filled - (self._stops[index - 1] if index else 0)
            n = min(count - filled, self._stops[index] - (start + filled))
            handle = self._file(index)
            try:
                for column, top in zip(out, self._tops, strict=True):
                    data_set(handle, top).read_direct(column, np.s_[row : row + n], np.s_[filled : filled + n])
            except HDF5_ERRORS as error:
                msg = f"{self._shown[index]}: damaged HDF5 file: {error}"
                raise DataSourceError(msg) from error
            filled += n
        return out

    def texts(self, name: str, start: int, count: int) -> list[str]:
        """Return the values of another dataset of the files, numbers or texts, as texts.

        Raises:
            DataSourceError: A file is damaged or has no such dataset.
        """
        check_range(start, count, len(self))
        decoded: list[str] = []
        while len(decoded) < count:
            index = bisect_right(self._stops, start + len(decoded))
            row = start + len(decoded) - (self._stops[index - 1] if index else 0)
            n = min(count - len(decoded), self._stops[index] - (start + len(decoded)))
            handle = self._file(index)
            if name not in handle:
                msg = f'{self._shown[index]}: no dataset "{name}"; the file holds {", ".join(sorted(handle))}'
                raise DataSourceError(msg)
            try:
                values = data_set(handle, name)[row : row + n].tolist()
            except HDF5_ERRORS as error:
                msg = f"{self._shown[index]}: damaged HDF5 file: {error}"
                raise DataSourceError(msg) from error
            decoded += [
                value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in values
            ]
        return decoded

    def close(self) -> None:
        """Close the open file."""
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def _file(self, index: int) -> Any:
        if self._open is None or self._open[0] != index:
            self.close()
            path = self._files[index]
            try:
                self._open = (index, open_hdf5(path))
            except DataSourceError:
                if not self._hides_words:
                    raise
                msg = f"{self._shown[index]}: leads into other files; store the data in the file itself"
                raise DataSourceError(msg) from None
            except HDF5_ERRORS as error:
                reason = getattr(error, "strerror", None) or error
                finding = f"not a readable HDF5 file: {reason}" if os.path.exists(path) else f"{reason}"
                msg = f"{self._shown[index]}: {finding}"
                raise DataSourceError(msg) from error
        return self._open[1]

    def _survey(self) -> None:
        """Look once at every file's shapes; all files must agree on all but the number of rows."""
        if self._stops:
            return
        rows = []
        shapes: tuple[Shape, ...] = ()
        for index in range(len(self._files)):
            file_shapes = self._dataset_shapes(index)
            if len({shape[0] for shape in file_shapes}) != 1:
                lengths = ", ".join(f"{top} {shape[0]:,}" for top, shape in zip(self._tops, file_shapes, strict=True))
                msg = f"{self._shown[index]}: datasets have different numbers of rows ({lengths}); allowed: equal"
                raise DataSourceError(msg)
            trailing = tuple(shape[1:] for shape in file_shapes)
            if index and trailing != shapes:
                first = f"those of {self._shown[0]} {shapes}"
                msg = f"{self._shown[index]}: rows have shapes {trailing}, {first}; allowed: equal"
                raise DataSourceError(msg)
            shapes = trailing
            rows.append(file_shapes[0][0])
        if not sum(rows):
            msg = f"{self._shown[0]}: the HDF5 files hold no rows"
            raise DataSourceError(msg)
        self._shapes = shapes
        self._stops = list(accumulate(rows))

    def _dataset_shapes(self, index: int) -> tuple[Shape, ...]:
        handle = self._file(index)
        try:
            items = [handle.get(top) for top in self._tops]
            shapes = [item.shape if isinstance(item, h5py.Dataset) else () for item in items]
            held = "other names (not shown)" if self._hides_words else ", ".join(sorted(handle)) or "nothing"
        except HDF5_ERRORS as error:
            msg = f"{self._shown[index]}: damaged HDF5 file: {error}"
            raise DataSourceError(msg) from error
        for top, shape in zip(self._tops, shapes, strict=True):
            if not shape:
                msg = f'{self._shown[index]}: no dataset "{top}"; the file holds {held}'
                raise DataSourceError(msg)
        return tuple(tuple(shape) for shape in shapes)


def read_hdf5_list(path: Path, root: Path) -> tuple[Path, ...]:
    """Return the files that an HDF5Data ``source`` lists, relative to ``root`` as in Caffe.

    Raises:
        DataSourceError: The list is missing or empty.
        ForbiddenPathError: The list, or a file that it names, lies outside of the allowed folders.
    """
    files = tuple(root / name for name in hdf5_list_names(path, root))
    for file in files:
        check_named_path(file, named_by=str(path), is_quoted=may_quote(path))
    return files


def hdf5_list_names(path: Path, root: Path) -> tuple[str, ...]:
    """Return the files that an HDF5Data ``source`` lists, as written; relative names start from ``root``.

    Raises:
        DataSourceError: The list is missing or empty.
        ForbiddenPathError: The list lies outside of the allowed folders.
    """
    check_named_path(path, named_by="the source of an HDF5Data layer")
    if not path.is_file():
        msg = f"{path}: no such list of HDF5 files"
        raise DataSourceError(msg)
    try:
        text = read_text_file(path)
    except OSError as error:
        msg = f"{path}: the list of HDF5 files cannot be read: {error.strerror or error}"
        raise DataSourceError(msg) from error
    names = listed_files(text, lambda name: not is_refused(root / name) and os.path.exists(root / name))
    if not names:
        msg = f"{path}: the list names no HDF5 file"
        raise DataSourceError(msg)
    return names


def require_listed_files(path: Path, files: Sequence[Path]) -> None:
    """Refuse a list outside the allowed folders if a file of the list is missing, before a copy of the list is made.

    Messages may quote the copy.

    Raises:
        DataSourceError: A file does not exist; the message does not name it.
    """
    for number, file in enumerate(files, start=1):
        if not os.path.isfile(file):
            msg = f"{path}: file {number} of the list (not shown) does not exist"
            raise DataSourceError(msg)
