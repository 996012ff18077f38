"""HDF5 of Caffe's HDF5Data layer: a file with data and labels, or a text file with paths of such files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from caffe_import.errors import CaffeImportError
from caffe_import.file_access.allowed_roots import check_named_path
from caffe_import.file_access.regular_file import open_regular
from caffe_import.file_access.text_file import listed_files, read_text_file, text_lines
from caffe_import.files.binary_file import HDF5_ERRORS
from caffe_import.files.datum import Image
from caffe_import.files.hdf5_file import data_set, open_hdf5
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.files.image_files import digest_of_files, file_stamp
from deepspark_ops.ingest.records import LocatedRecords, ReadRecord, RecordError, SourceIndex, rows_of_files
from deepspark_ops.ingest.sources.format import Format, Look, usual_neighbour
from deepspark_ops.stores.staging import local_copy
from deepspark_ops.stores.store_path import DataPath, StorePath, joined

_MOST_EXACT = 2.0**53
"""From here on float64 skips whole numbers, and soon none is an int64."""
_MAGIC = b"\x89HDF\r\n\x1a\n"
_ENDINGS = (".h5", ".hdf5", ".hdf")
_DATA_NAMES = ("data", "images", "image", "x", "X")
_LABEL_NAMES = ("label", "labels", "y", "Y")
_CACHE_BYTES = 2**26
"""Cache of unpacked chunks of a data set: rows read out of order then do not unpack a chunk each."""


@dataclass(frozen=True)
class Hdf5Reader(LocatedRecords):
    """Reads rows of one dataset of several files by number.

    Attributes:
        files: All have the dataset.
        column: Name of the dataset.
        shape: (C, H, W) of a row.
        locations: (n, 2), as of ``rows_of_files``.
    """

    files: tuple[DataPath, ...]
    column: str
    shape: tuple[int, int, int]

    @contextmanager
    def opened(self) -> Iterator[ReadRecord]:
        """See ``RecordReader``."""
        with ExitStack() as stack:
            handles: dict[int, Any] = {}
            yield lambda index: self._read(handles, stack, index)

    def _read(self, handles: dict[int, Any], stack: ExitStack, index: int) -> Image:
        number, row = self.locations[index].tolist()
        try:
            if number not in handles:
                local = stack.enter_context(local_copy(self.files[number]))
                handles[number] = stack.enter_context(open_hdf5(local, rdcc_nbytes=_CACHE_BYTES))
            values = np.asarray(data_set(handles[number], self.column)[row])
        except CaffeImportError as error:
            raise RecordError(str(error)) from error
        except HDF5_ERRORS as error:
            msg = f"{self.files[number]}: damaged HDF5 file: {error}"
            raise RecordError(msg) from error
        try:
            with np.errstate(over="raise"):
                kind = np.uint8 if values.dtype == np.uint8 else np.float32
                return values.reshape(self.shape).astype(kind, copy=False)
        except FloatingPointError as error:
            msg = f"{self.files[number]}: row {row} of {self.column!r} has a number that no float32 holds"
            raise RecordError(msg) from error


def index_hdf5(config: IngestConfig, source: DataPath, _work: DataPath, *, with_labels: bool = True) -> SourceIndex:
    """Read the labels (each is 0 without ``with_labels``) and the shape of the data.

    Images or features are (n, C, H, W), (n, H, W) or (n, D), labels (n,) or (n, 1, ...).

    Raises:
        ConfigError: A data set is missing, or labels are no class numbers.
        DataError: A file is missing or damaged, or files differ in shape.
    """
    files = _files(config, source)
    labels, shapes, columns = [], [], []
    for path in files:
        shape_by_name = _data_sets(path)
        column = _find(shape_by_name, path, "image_column", config.image_column, _DATA_NAMES)
        columns.append(column)
        shapes.append(shape_by_name[column])
        n_rows = shape_by_name[column][0]
        labels.append(
            _labels(path, _find(shape_by_name, path, "label_column", config.label_column, _LABEL_NAMES), n_rows)
            if with_labels
            else np.zeros(n_rows, np.int64)
        )
    rows = {(column, shape[1:]) for column, shape in zip(columns, shapes, strict=True)}
    if len(rows) > 1:
        shown = "; ".join(
            f"{path.name}: {column} {shape[1:]}" for path, column, shape in zip(files, columns, shapes, strict=True)
        )
        msg = f"{source}: rows of the files differ in name or shape ({shown}); allowed: equal"
        raise DataError(msg)
    names, file_rows = rows_of_files(files, [len(part) for part in labels])
    if not names:
        msg = f"{source}: the HDF5 files hold no rows"
        raise DataError(msg)
    return SourceIndex(
        labels=np.concatenate(labels),
        names=names,
        reader=Hdf5Reader(file_rows, files, columns[0], _image_shape(source, columns[0], shapes[0])),
    )


def has_data_set(config: IngestConfig, name: str) -> bool:
    """Return whether the first file of a source has a data set of a name; for errors see ``index_hdf5``."""
    return name in _data_sets(_files(config, config.source)[0])


def _files(config: IngestConfig, source: DataPath) -> tuple[DataPath, ...]:
    """Return the file, or the files of a list.

    The list's paths start from ``root_folder``, else from the list's folder or a folder above, since Caffe takes paths
    from where it is started.
    """
    with open_regular(source) as handle:
        if handle.read(len(_MAGIC)) == _MAGIC:
            return (source,)
    folders: tuple[DataPath, ...] = (*source.resolve().parents,)
    if config.root_folder is not None:
        folders = (config.root_folder,)
    try:
        names = listed_files(
            read_text_file(source), lambda name: any(joined(folder, name).exists() for folder in folders)
        )
        files = tuple(_first_there(folders, name) for name in names)
    except OSError as error:  # a name that no file can have
        msg = f"{source}: the list names {error.filename!r}: {error.strerror}"
        raise DataError(msg) from error
    if not files:
        msg = f"{source}: the list names no HDF5 file"
        raise DataError(msg)
    for path in files:
        if not isinstance(path, StorePath):
            check_named_path(path, named_by=f"the list of HDF5 files {source}")
    return files


def _first_there(folders: tuple[DataPath, ...], name: str) -> DataPath:
    paths = [joined(folder, name) for folder in folders]
    return next((path for path in paths if path.is_file()), paths[0])


def _data_sets(path: DataPath) -> dict[str, tuple[int, ...]]:
    """Return the shape of each data set at the top of a file."""
    with _opened(path) as handle:
        return {str(key): item.shape for key, item in handle.items() if isinstance(item, h5py.Dataset) and item.shape}


@contextmanager
def _opened(path: DataPath) -> Iterator[Any]:
    try:
        with local_copy(path) as local, open_hdf5(local) as handle:
            yield handle
    except CaffeImportError as error:
        raise DataError(str(error)) from error
    except HDF5_ERRORS as error:
        reason = "no such file" if not path.exists() else f"not a readable HDF5 file: {error}"
        msg = f"{path}: {reason}"
        raise DataError(msg) from error


def _find(
    shape_by_name: Mapping[str, tuple[int, ...]], path: DataPath, option: str, name: str | None, usual: tuple[str, ...]
) -> str:
    column = next((key for key in ((name,) if name is not None else usual) if key in shape_by_name), None)
    if column is None:
        missing = f'no data set "{name}"' if name is not None else f"no data set of a usual name ({', '.join(usual)})"
        held = ", ".join(f"{key} {shape}" for key, shape in shape_by_name.items()) or "none"
        msg = f"{path}: {missing}; there are: {held}; name one with {option}"
        raise ConfigError(msg)
    return column


def _labels(path: DataPath, column: str, n_rows: int) -> npt.NDArray[np.int64]:
    with _opened(path) as handle:
        values = np.asarray(data_set(handle, column))
    if values.size != n_rows or len(values) != n_rows:
        msg = (
            f'{path}: data set "{column}" has shape {values.shape} for {n_rows:,} rows of data; ingestion takes one'
            " class number a row. Name another with label_column; a net's HDF5Data layer reads them without it"
        )
        raise ConfigError(msg)
    if values.dtype.kind not in "biuf":
        msg = f'{path}: data set "{column}" holds texts; ingestion takes one class number a row'
        raise ConfigError(msg)
    with np.errstate(invalid="ignore"):  # a signalling NaN, which is refused as any other
        values = values.reshape(n_rows).astype(np.float64)
    if (is_bad := ~((np.abs(values) < _MOST_EXACT) & (values == np.floor(values)))).any():
        row = int(np.flatnonzero(is_bad)[0])
        msg = (
            f'{path}: data set "{column}" holds {values[row]} in row {row:,}, which is no class number;'
            " a net's HDF5Data layer reads such labels without ingestion"
        )
        raise ConfigError(msg)
    return values.astype(np.int64)


def _image_shape(source: DataPath, column: str, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return (C, H, W): features (n, D) become D channels, the layout of Caffe's InnerProduct."""
    if len(shape) == 4:
        return shape[1], shape[2], shape[3]
    if len(shape) == 3:
        return 1, shape[1], shape[2]
    if len(shape) == 2:
        return shape[1], 1, 1
    msg = (
        f'{source}: data set "{column}" has shape {shape}; allowed: (n, channels, height, width), (n, height, width),'
        " (n, features)"
    )
    raise ConfigError(msg)


def _looks_like(look: Look) -> bool:
    if look.start.startswith(_MAGIC):
        return True
    # The last line may be cut by the look's length.
    lines = [line.lower() for line in text_lines(look.text or "")][:20]
    return any(lines) and all(line.endswith(_ENDINGS) for line in lines)


FORMAT = Format(
    kinds=frozenset({"file"}),
    options=frozenset({"root_folder", "image_column", "label_column"}),
    looks_like=_looks_like,
    digest=lambda config, source: digest_of_files(_files(config, source)),
    index=index_hdf5,
    index_unlabelled=partial(index_hdf5, with_labels=False),
    named_stamps=lambda config, source: (file_stamp(path, config.stamp) for path in _files(config, source)),
    usual_test=lambda source: usual_neighbour(source, (("train", "test"),)),
)
