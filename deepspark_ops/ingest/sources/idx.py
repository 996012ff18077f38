"""IDX files (MNIST's format): an image file and a label file in the same folder, each gzipped or not.

Format: two zero bytes, a type byte (8: unsigned bytes), the number of axes, each axis as a big-endian uint32, values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np
import numpy.typing as npt

from caffe_import.file_access.regular_file import regular_path
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.files.archive import decompressed, read_start
from deepspark_ops.ingest.files.image_files import digest_of_files
from deepspark_ops.ingest.records import LocatedRecords, ReadRecord, SourceIndex
from deepspark_ops.ingest.sources.format import Format, usual_neighbour
from deepspark_ops.stores.staging import local_copy
from deepspark_ops.stores.store_path import DataPath

_UNSIGNED_BYTE = 8
_MAX_AXES = 4


@dataclass(frozen=True)
class IdxReader(LocatedRecords):
    """Reads images of a decompressed IDX file by number; gray images get one channel. ``locations``: (n,) numbers."""

    path: DataPath
    header_bytes: int
    shape: tuple[int, int, int]

    @contextmanager
    def opened(self) -> Iterator[ReadRecord]:
        """See ``RecordReader``."""
        with local_copy(self.path) as path:
            values = np.memmap(regular_path(path), np.uint8, "r", offset=self.header_bytes).reshape(-1, *self.shape)
            yield lambda index: np.array(values[self.locations[index]])


def is_idx(path: DataPath) -> bool:
    """Return whether a file starts with the header of an IDX file of images."""
    start = read_start(path, 4)
    return len(start) == 4 and start[:3] == bytes((0, 0, _UNSIGNED_BYTE)) and 1 <= start[3] <= _MAX_AXES


def index_idx(config: IngestConfig, source: DataPath, work: DataPath, *, with_labels: bool = True) -> SourceIndex:
    """Read the labels (each is 0 without ``with_labels``) and the images' header.

    Raises:
        ConfigError: The label file is missing.
        DataError: A file is not IDX, is cut short, or the two differ in length.
    """
    images = decompressed(source, work)
    header_bytes, axes = _header(images, source)
    if len(axes) not in (3, 4):
        msg = (
            f"{source}: an IDX file of images has axes (n, height, width) or (n, channels, height, width), found {axes}"
        )
        raise DataError(msg)
    label_values = np.zeros(axes[0], np.int64)
    if with_labels:
        label_path = find_labels(config, source)
        label_values = _read_labels(label_path, work)
        if len(label_values) != axes[0]:
            msg = f"{source} holds {axes[0]:,} images, {label_path} {len(label_values):,} labels; allowed: equal"
            raise DataError(msg)
    shape = (1, axes[1], axes[2]) if len(axes) == 3 else (axes[1], axes[2], axes[3])
    return SourceIndex(
        labels=label_values,
        names=[str(i) for i in range(axes[0])],
        reader=IdxReader(np.arange(axes[0]), images, header_bytes, shape),
    )


def find_labels(config: IngestConfig, source: DataPath) -> DataPath:
    """Return ``labels`` for the training source, or the file with the usual name in the images' folder, gzipped or not.

    Raises:
        ConfigError: The label file does not exist.
    """
    if config.labels is not None and source == config.source:
        if not config.labels.is_file():
            msg = f"labels={config.labels}: no such file"
            raise ConfigError(msg)
        return config.labels
    usual = re.sub(r"images([-.])idx\d", r"labels\1idx1", source.name)
    candidates = [source.with_name(usual), source.with_name(usual.removesuffix(".gz")), source.with_name(usual + ".gz")]
    label_path = next((path for path in candidates if path != source and path.is_file()), None)
    if label_path is None:
        is_misnamed = usual == source.name
        finding = "the name is not IMAGES-images-idx3-ubyte" if is_misnamed else f"no label file {usual} beside it"
        msg = f"{source}: {finding}; give the file of images, and labels if their file has another name"
        raise ConfigError(msg)
    return label_path


def _read_labels(path: DataPath, work: DataPath) -> npt.NDArray[np.int64]:
    plain = decompressed(path, work)
    header_bytes, axes = _header(plain, path)
    if len(axes) != 1:
        msg = f"{path}: an IDX file of labels has one axis, found {axes}"
        raise DataError(msg)
    with local_copy(plain) as local:
        return np.fromfile(regular_path(local), np.uint8, offset=header_bytes).astype(np.int64)


def _header(plain: DataPath, path: DataPath) -> tuple[int, tuple[int, ...]]:
    """Return the header's length and the axes, after comparing them with the file's length."""
    start = read_start(plain, 4 + 4 * _MAX_AXES)
    if not is_idx(plain):
        msg = f"{path}: not an IDX file of unsigned bytes; it starts with {start[:4].hex(' ')}, expected 00 00 08 03"
        raise DataError(msg)
    header_bytes = 4 + 4 * start[3]
    if len(start) < header_bytes:
        msg = f"{path}: cut short in its header of {header_bytes} bytes; fetch it again"
        raise DataError(msg)
    axes = tuple(int(axis) for axis in np.frombuffer(start[4:header_bytes], ">u4"))
    needed, file_bytes = header_bytes + prod(axes), plain.stat().st_size
    if file_bytes != needed:
        msg = f"{path}: axes {axes} need {needed:,} bytes, the file has {file_bytes:,}; fetch it again"
        raise DataError(msg)
    if not prod(axes):
        msg = f"{path}: the IDX file is empty, axes {axes}"
        raise DataError(msg)
    return header_bytes, axes


FORMAT = Format(
    kinds=frozenset({"file"}),
    options=frozenset({"labels"}),
    looks_like=lambda look: is_idx(look.path),
    digest=lambda config, source: digest_of_files([source, find_labels(config, source)]),
    index=index_idx,
    index_unlabelled=partial(index_idx, with_labels=False),
    usual_test=lambda source: usual_neighbour(source, (("train-images", "t10k-images"),)),
)
