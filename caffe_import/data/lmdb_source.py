"""An LMDB of Datum records, in key order, read by position."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb
import numpy as np

from caffe_import.data.lmdb_environment import acquire_environment, release_environment
from caffe_import.data.sample_source import Column, check_range, column_of
from caffe_import.errors import DataSourceError
from caffe_import.files.datum import PixelRecords, decode_datum
from caffe_import.net.layer_registry import Shape

_INDEX_STRIDE = 64
"""Every 64th key is remembered: LMDB finds keys, not positions, and stepping over 63 keys costs microseconds."""


class LmdbSource:
    """Images and labels of one LMDB folder. Not thread-safe; usable after a fork.

    Attributes:
        is_transformed: True: Caffe's Data layer transforms its images.
    """

    is_transformed = True

    def __init__(self, folder: Path, *, color: bool | None = None, with_labels: bool = True) -> None:
        """Remember where; nothing is opened before the first use.

        Args:
            folder: Holds data.mdb.
            color: How compressed records are decoded, see ``caffe_import.files.datum.decode_datum``.
            with_labels: False for a Data layer with one top.
        """
        self.folder = folder
        self._color = color
        self._with_labels = with_labels
        self._environment: lmdb.Environment | None = None
        self._opened_folder = folder
        self._process = 0
        self._marks: list[bytes] = []
        self._n_samples = 0
        self._pixels: PixelRecords | None = None

    def __len__(self) -> int:
        """Return the number of records, as the header says; no record is touched."""
        self._opened()
        return self._n_samples

    def sample_shapes(self) -> tuple[Shape, ...]:
        """Return the first record's ``((C, H, W), ())``, or one shape without labels."""
        shape = self.read(0, 1)[0].shape[1:]
        return (shape, ()) if self._with_labels else (shape,)

    def read(self, start: int, count: int) -> list[Column]:
        """Return ``[images (count, C, H, W) uint8 or float32, labels (count,) int64]``, or the images alone.

        Raises:
            DataSourceError: A record is damaged.
        """
        check_range(start, count, len(self))
        labels = np.empty(count, np.int64)
        images: Column | None = None
        mixed: list[Column] = []
        """All images from the first image with another shape or type on."""
        pixels: PixelRecords | None = None
        rows: list[memoryview] = []
        with self.records(start, count) as records:
            for i, (key, record) in enumerate(records):
                if pixels is not None and not mixed and (label := pixels.read(record, rows[i])) is not None:
                    labels[i] = label
                    continue
                image, labels[i] = decode_datum(record, color=self._color, where=f"{self.folder}: record {key!r}")
                if images is None:
                    images = np.empty((count, *image.shape), image.dtype)
                    if image.dtype == np.uint8:
                        rows = [row.data for row in images.reshape(count, -1)]
                        pixels = self._pixel_records(image.shape)
                if mixed or image.shape != images.shape[1:] or image.dtype != images.dtype:
                    mixed = mixed or list(images[:i])
                    mixed.append(image)
                else:
                    images[i] = image
        if images is None:
            msg = f"{self.folder}: the database ends before position {start}"
            raise DataSourceError(msg)
        column = column_of(mixed) if mixed else images
        return [column, labels] if self._with_labels else [column]

    def _pixel_records(self, shape: Shape) -> PixelRecords:
        if self._pixels is None or self._pixels.shape != shape:
            channels, height, width = shape
            self._pixels = PixelRecords((channels, height, width))
        return self._pixels

    def key(self, index: int) -> str:
        """Return the key of the record at ``index``."""
        return self.keys(index, 1)[0]

    def keys(self, start: int, count: int) -> list[str]:
        """Return the keys of ``count`` records from position ``start`` on."""
        with self.records(start, count) as records:
            return [key.decode("utf-8", "backslashreplace") for key, _ in records]

    @contextmanager
    def records(self, start: int, count: int) -> Iterator[Iterator[tuple[bytes, memoryview]]]:
        """Yield an iterator of ``(key, serialized Datum)``; the views are valid inside the block only.

        Raises:
            DataSourceError: A page of the database is damaged, or records are missing.
        """
        environment = self._opened()
        if not self._marks:
            self._marks = self._key_marks(environment)
        try:
            with environment.begin(buffers=True) as transaction:
                yield self._walk(transaction.cursor(), start, count)
        except lmdb.Error as error:
            msg = f"{self.folder}: damaged LMDB near position {start}: {error}; make the database again"
            raise DataSourceError(msg) from error

    def _walk(self, cursor: Any, start: int, count: int) -> Iterator[tuple[bytes, memoryview]]:
        cursor.set_key(self._marks[start // _INDEX_STRIDE])
        for _ in range(start % _INDEX_STRIDE):
            cursor.next()
        n_read = 0
        for key, record in cursor.iternext():
            yield bytes(key), record
            n_read += 1
            if n_read == count:
                return
        msg = f"{self.folder}: header says {self._n_samples:,} records, found {start + n_read:,}; make it again"
        raise DataSourceError(msg)

    def close(self) -> None:
        """Give the file back; the next read opens it again."""
        # A handle inherited over a fork belongs to the parent.
        if self._environment is not None and self._process == os.getpid():
            release_environment(self._opened_folder)
        self._environment = None

    def _opened(self) -> lmdb.Environment:
        if self._environment is None or self._process != os.getpid():
            # The same folder has to be given back wherever the process has gone meanwhile.
            self._opened_folder = self.folder.resolve()
            environment = acquire_environment(self._opened_folder)
            self._environment, self._process = environment, os.getpid()
            self._n_samples = environment.stat()["entries"]
            if self._n_samples == 0:
                self.close()
                msg = f"{self.folder}: the LMDB has no records"
                raise DataSourceError(msg)
        return self._environment

    def _key_marks(self, environment: lmdb.Environment) -> list[bytes]:
        marks = []
        try:
            with environment.begin() as transaction:
                for i, key in enumerate(transaction.cursor().iternext(keys=True, values=False)):
                    if i % _INDEX_STRIDE == 0:
                        marks.append(key)
        except lmdb.Error as error:
            msg = f"{self.folder}: damaged LMDB: {error}; make the database again"
            raise DataSourceError(msg) from error
        return marks
