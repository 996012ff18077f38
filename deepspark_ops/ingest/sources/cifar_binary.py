"""CIFAR's binary version: several files; a record is label bytes and 32 x 32 planar pixels.

CIFAR-10 has one label byte, CIFAR-100 two: coarse (20 classes), then fine (100). The files hold RGB planes, and
Caffe's convert_cifar_data stores RGB. Ingestion stores BGR, the channel order of every image that OpenCV decodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from caffe_import.file_access.regular_file import regular_path
from caffe_import.file_access.text_file import read_text_file
from caffe_import.files.datum import Image
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.files.image_files import digest_of_files
from deepspark_ops.ingest.records import LocatedRecords, ReadRecord, SourceIndex, rows_of_files
from deepspark_ops.ingest.sources.format import Format, usual_neighbour
from deepspark_ops.stores.staging import local_copy
from deepspark_ops.stores.store_path import DataPath

_SHAPE = (3, 32, 32)
_PIXEL_BYTES = 3072
CifarLabels = Literal["fine", "coarse"]
_LABEL_NAMES: Mapping[CifarLabels, tuple[str, ...]] = {
    "fine": ("batches.meta.txt", "fine_label_names.txt"),
    "coarse": ("coarse_label_names.txt",),
}


@dataclass(frozen=True)
class CifarReader(LocatedRecords):
    """Reads records of files with ``label_bytes`` before each image; ``locations`` as of ``rows_of_files``."""

    files: tuple[DataPath, ...]
    label_bytes: int

    @contextmanager
    def opened(self) -> Iterator[ReadRecord]:
        """See ``RecordReader``."""
        with ExitStack() as stack:
            maps = [_rows(stack.enter_context(local_copy(path)), self.label_bytes) for path in self.files]

            def read(index: int) -> Image:
                number, row = self.locations[index].tolist()
                return np.ascontiguousarray(maps[number][row, self.label_bytes :].reshape(_SHAPE)[::-1])

            yield read


def cifar_files(source: DataPath) -> tuple[DataPath, ...]:
    """Return the batches of ``source``: the file itself, or a folder's training batches; may be empty."""
    if source.is_file():
        return (source,) if source.suffix == ".bin" else ()
    batches = sorted(path for path in source.glob("*.bin") if re.fullmatch(r"data_batch_\d+\.bin", path.name))
    return tuple(batches) or tuple(source.glob("train.bin"))


def index_cifar(config: IngestConfig, source: DataPath, _work: DataPath) -> SourceIndex:
    """Read the labels of every batch; ``cifar_labels`` chooses fine or coarse labels of CIFAR-100.

    Raises:
        ConfigError: No batch there, or CIFAR-10 is asked for coarse labels.
        DataError: A file is no whole number of records.
    """
    which, files = config.cifar_labels, _require_files(source)
    label_bytes = _label_bytes(files)
    if which == "coarse" and label_bytes == 1:
        msg = f"{source}: cifar_labels=coarse: these are CIFAR-10's records of one label; CIFAR-100 has fine and coarse"
        raise ConfigError(msg)
    column = 0 if which == "coarse" else label_bytes - 1
    labels = []
    for path in files:
        with local_copy(path) as local:
            labels.append(np.array(_rows(local, label_bytes)[:, column], np.int64))
    names, rows = rows_of_files(files, [len(part) for part in labels])
    folder = source if source.is_dir() else source.parent
    return SourceIndex(
        labels=np.concatenate(labels),
        names=names,
        reader=CifarReader(rows, files, label_bytes),
        class_names=_class_names(folder, which),
    )


def digest_cifar(config: IngestConfig, source: DataPath) -> str:
    """Return a digest of every batch and of the file of class names."""
    files = list(_require_files(source))
    folder = source if source.is_dir() else source.parent
    files += [folder / name for name in _LABEL_NAMES[config.cifar_labels] if (folder / name).is_file()]
    return digest_of_files(files)


def _require_files(source: DataPath) -> tuple[DataPath, ...]:
    files = cifar_files(source)
    if not files:
        msg = f"{source}: no CIFAR batches here; allowed: a .bin file, or a folder with data_batch_*.bin or train.bin"
        raise ConfigError(msg)
    return files


def _label_bytes(files: tuple[DataPath, ...]) -> int:
    """Return 1 for CIFAR-10, 2 for CIFAR-100: every file must be a whole number of records."""
    for label_bytes in (1, 2):
        if all(path.stat().st_size and path.stat().st_size % (_PIXEL_BYTES + label_bytes) == 0 for path in files):
            return label_bytes
    sizes = ", ".join(f"{path.name} {path.stat().st_size:,}" for path in files)
    msg = f"{files[0].parent}: not whole CIFAR records of 3,073 or 3,074 bytes: {sizes}; fetch the files again"
    raise DataError(msg)


def _rows(path: Path, label_bytes: int) -> npt.NDArray[np.uint8]:
    return np.memmap(regular_path(path), np.uint8, "r").reshape(-1, label_bytes + _PIXEL_BYTES)


def _class_names(folder: DataPath, which: CifarLabels) -> tuple[str, ...]:
    for name in _LABEL_NAMES[which]:
        if (folder / name).is_file():
            return tuple(read_text_file(folder / name).split())
    return ()


FORMAT = Format(
    kinds=frozenset({"file", "folder"}),
    options=frozenset({"cifar_labels"}),
    looks_like=lambda look: bool(cifar_files(look.path)),
    digest=digest_cifar,
    index=index_cifar,
    usual_test=lambda source: usual_neighbour(
        source, (("data_batch_1.bin", "test_batch.bin"), ("train.bin", "test.bin"))
    ),
)
