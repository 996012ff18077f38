"""Reading a dataset by (shard, start, count): ingested shards, or a net's own sources, with one interface."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.data import SampleSource, open_source
from caffe_import.data.hdf5_source import Hdf5Source
from caffe_import.data.image_source import ImageSource
from caffe_import.data.lmdb_source import LmdbSource
from caffe_import.data.sample_source import image_shapes, join_columns
from caffe_import.errors import CaffeImportError
from caffe_import.files.datum import parse_datum
from caffe_import.net.layer_registry import Shape
from caffe_import.proto import caffe_pb2
from deepspark_ops.errors import DataError
from deepspark_ops.shards.changed_shards import ShardGuard, Stamp
from deepspark_ops.shards.excluded_rows import Ranges, kept_rows, row_ranges
from deepspark_ops.shards.files.shard_records import read_records
from deepspark_ops.shards.manifest import (
    DatasetManifest,
    ShardFormat,
    read_manifest,
    shard_folder,
)
from deepspark_ops.shards.preprocessing import ImagePreprocessing
from deepspark_ops.shards.staged_shards import StagedShards
from deepspark_ops.stores.staging import local_copy
from deepspark_ops.stores.store_path import DataPath, StorePath, data_path

_OPEN_SHARDS = 4
"""Shards kept open per dataset: pieces of few shards are read at a time, and file handles are finite."""

SHARD_COLUMNS = ("data", "label")
REPAIR = 'run "deepspark ingest" again'


@dataclass(frozen=True)
class ShardInfo:
    """Facts of a shard for reading.

    Attributes:
        name: Name in messages.
        n_samples: Samples that count.
        excluded: Rows of the file that do not count.
    """

    name: str
    n_samples: int
    excluded: Ranges = ()

    @property
    def n_rows(self) -> int:
        """Samples in the file."""
        return self.n_samples + sum(stop - start for start, stop in self.excluded)


class Dataset:
    """Samples in shards, read in any order of pieces. The first read opens files.

    Safe to make before a fork and to send to another process by path; for one reading thread.

    Attributes:
        columns: Name of each array of ``read``: ``("data", "label")``, or the tops of the layer.
        sample_shapes: Shape of the first sample of each column; (C, H, W) and () for images.
        shards: In the order of the samples.
        manifest: Manifest of an ingested split; None for a source that a net names.
        is_transformed: Whether a layer's transform_param applies to the first column.
        preprocessing: Steps of ingestion for the images of the first column; None for other samples and unknown steps:
            a database that a net names may hold resized images.
    """

    def __init__(
        self,
        *,
        columns: Sequence[str],
        sample_shapes: Sequence[Shape],
        shards: Sequence[ShardInfo],
        open_shard: Callable[[int], SampleSource],
        is_transformed: bool,
        manifest: DatasetManifest | None = None,
        staged: StagedShards | None = None,
        guard: ShardGuard | None = None,
        preprocessing: ImagePreprocessing | None = None,
    ) -> None:
        """Keep the facts; ``open_shard`` returns the source of a shard, and the dataset closes the source.

        ``staged`` has the local copies behind the sources, and releases a copy when the source is closed. ``guard``
        notices changed shards.
        """
        self.columns = tuple(columns)
        self.sample_shapes = tuple(sample_shapes)
        self.shards = tuple(shards)
        self.manifest = manifest
        self.is_transformed = is_transformed
        self.preprocessing = preprocessing
        self._open_shard = open_shard
        self._staged = staged
        self._guard = guard
        # An open copy cannot be removed from the disk: if not all shards fit, other processes need the room.
        self._most_open = _OPEN_SHARDS if staged is None or staged.fits else 1
        self._opened: OrderedDict[int, SampleSource] = OrderedDict()

    @property
    def n_samples(self) -> int:
        """Count of samples in all shards."""
        return sum(shard.n_samples for shard in self.shards)

    @property
    def is_staged(self) -> bool:
        """Whether the shards are in a store, and copies on the disk are read."""
        return self._staged is not None

    def will_read(self, shards: Sequence[int]) -> None:
        """Fetch shards of a store ahead, in this order; for a local dataset do nothing."""
        if self._staged is not None:
            self._staged.will_read(shards)

    def read(self, shard: int, start: int, count: int) -> tuple[npt.NDArray[Any], ...]:
        """Return samples ``[start, start + count)`` of a shard, a fresh array per column.

        Images are (count, C, H, W) uint8 or float32, BGR, as stored, or (count,) objects if the shapes of a net's own
        source differ; labels are (count,) int64. For a table, features are
        (count, D) float32, and labels with values (count,) or (count, L) float32. The columns of an HDF5 source that a
        net names are float32.

        Raises:
            DataError: The shard is missing, damaged, changed, or shorter than in the manifest.
        """
        if self._guard is not None:
            self._guard.check(shard)
        source = self._source(shard)
        try:
            n_samples = len(source)
            if n_samples != self.shards[shard].n_rows:
                raise DataError(wrong_count(self.shards[shard].name, self.shards[shard].n_rows, n_samples))
            columns = self._columns(source, shard, start, count)
        except CaffeImportError as error:
            raise DataError(str(error)) from error
        if self.manifest is not None:
            self._check_shapes(shard, set(image_shapes(columns[0])))
            if self.manifest.n_classes:
                columns[1] = columns[1].astype(np.int64, copy=False)
        return tuple(columns)

    def _columns(self, source: SampleSource, shard: int, start: int, count: int) -> list[npt.NDArray[Any]]:
        excluded = self.shards[shard].excluded
        if not excluded:
            return source.read(start, count)
        parts = [source.read(first, stop - first) for first, stop in row_ranges(excluded, start, count)]
        return [join_columns(columns) for columns in zip(*parts, strict=True)]

    def _check_shapes(self, shard: int, shapes: set[Shape]) -> None:
        """Compare samples with the manifest: the net has the shapes of the manifest."""
        for shape in shapes - {self.sample_shapes[0]}:
            msg = (
                f"shard {self.shards[shard].name}: samples have shape {shape}, the manifest says"
                f" {self.sample_shapes[0]}; {REPAIR}, or leave out what decodes compressed images as colour or gray"
                " (force_color, force_gray, is_color)"
            )
            raise DataError(msg)

    def is_encoded(self, shard: int) -> bool:
        """Return whether a shard's first sample is a compressed image.

        Raises:
            DataError: The shard is damaged.
        """
        source = self._source(shard)
        if not isinstance(source, LmdbSource):
            return False
        try:
            with source.records(0, 1) as records:
                return any(parse_datum(record, where=self.shards[shard].name).encoded for _, record in records)
        except CaffeImportError as error:
            raise DataError(str(error)) from error

    def sample_name(self, shard: int, index: int) -> str:
        """Return the name of a sample for messages: the position and, if the source has names, key or file."""
        source = self._source(shard)
        row = row_ranges(self.shards[shard].excluded, index, 1)[0][0]
        key = f' ("{source.key(row)}")' if isinstance(source, LmdbSource | ImageSource) else ""
        if isinstance(source, ImageSource) and not source.is_quoted:
            key = ""
        return f"sample {index}{key} of {self.shards[shard].name}"

    def keys(self, shard: int, start: int, count: int) -> list[str] | None:
        """Return the names of samples in the source: an LMDB's keys, image files; None without names.

        Raises:
            DataError: The shard is damaged.
        """
        source = self._source(shard)
        ranges = row_ranges(self.shards[shard].excluded, start, count)
        if isinstance(source, LmdbSource):
            try:
                return [key for first, stop in ranges for key in source.keys(first, stop - first)]
            except CaffeImportError as error:
                raise DataError(str(error)) from error
        if isinstance(source, ImageSource):
            return [source.key(row) for first, stop in ranges for row in range(first, stop)]
        return None

    def texts(self, shard: int, start: int, count: int, name: str) -> list[str]:
        """Return another column of an HDF5 shard, such as ``group`` or ``id`` of a table's rows, as texts.

        Raises:
            DataError: The shards have no such column.
        """
        source = self._source(shard)
        if not isinstance(source, Hdf5Source):
            msg = f'{self.shards[shard].name}: no column "{name}"; only a dataset made of a table has such columns'
            raise DataError(msg)
        ranges = row_ranges(self.shards[shard].excluded, start, count)
        try:
            return [text for first, stop in ranges for text in source.texts(name, first, stop - first)]
        except CaffeImportError as error:
            raise DataError(str(error)) from error

    def group_hashes(self, shard: int) -> npt.NDArray[np.uint64] | None:
        """Return a hash of the group of each sample of a shard, (n_samples,); None without groups.

        Raises:
            DataError: A file beside the shard is damaged.
        """
        manifest, info = self.manifest, self.shards[shard]
        if manifest is None:
            return None
        if manifest.table is not None and manifest.table.group is not None:
            texts = self.texts(shard, 0, info.n_samples, "group")
            joined = b"".join(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest() for text in texts)
            return np.frombuffer(joined, "<u8").astype(np.uint64)
        records = manifest.shards[shard].records
        if manifest.group is None or records is None:
            return None
        groups = read_records(data_path(info.name).parent / records.file).groups
        return None if groups is None else groups[kept_rows(info.excluded, info.n_rows)]

    def close(self) -> None:
        """Close every file; a later read opens the files again."""
        for source in self._opened.values():
            source.close()
        self._opened.clear()
        if self._staged is not None:
            self._staged.close()

    def __enter__(self) -> Dataset:
        """Return the dataset itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close every file."""
        self.close()

    def _source(self, shard: int) -> SampleSource:
        if shard in self._opened:
            self._opened.move_to_end(shard)
            return self._opened[shard]
        if len(self._opened) >= self._most_open:
            oldest, source = self._opened.popitem(last=False)
            source.close()
            if self._staged is not None:
                self._staged.release(oldest)
        source = self._opened[shard] = self._open_shard(shard)
        return source


def open_dataset(
    split_folder: DataPath, *, color: bool | None = None, stamps: Mapping[str, Stamp] | None = None
) -> Dataset:
    """Return the ingested split in ``split_folder``; the call reads only the manifest.

    Args:
        split_folder: Holds the manifest and the shards.
        color: Decoding of compressed images: None: channels of the file, True: BGR, False: gray.
        stamps: Stamps of the shards at the beginning of a run (``shard_stamps``); reads refuse a changed shard. None:
            reads do not compare.

    Raises:
        DataError: The manifest is missing or damaged.
    """
    manifest = read_manifest(split_folder)
    folder = shard_folder(split_folder)
    staged, guard = None, None
    if isinstance(folder, StorePath):
        staged = StagedShards(folder, manifest)
        path_of: Callable[[int], Path] = staged.path
    else:
        path_of = partial(_local_shard, folder, manifest)
        guard = None if stamps is None else ShardGuard(folder, manifest, stamps)

    return Dataset(
        columns=shard_columns(manifest),
        sample_shapes=_sample_shapes(manifest),
        shards=[ShardInfo(str(folder / shard.file), shard.n_samples, shard.excluded) for shard in manifest.shards],
        open_shard=lambda shard: shard_source(path_of(shard), manifest, color),
        # HDF5 shards hold the same images as LMDB shards, so the net's transforms apply to both, but not to features.
        is_transformed=manifest.table is None,
        manifest=manifest,
        staged=staged,
        guard=guard,
        preprocessing=_preprocessing_of_split(manifest, color),
    )


def _preprocessing_of_split(manifest: DatasetManifest, color: bool | None) -> ImagePreprocessing | None:
    steps = manifest.pixels
    if steps is None:
        return None
    channels, height, width = manifest.sample_shape
    return ImagePreprocessing(
        **steps.model_dump(),
        sample_shape=(channels, height, width),
        encoded=manifest.encoded,
        read_color=color if manifest.encoded else None,
    )


def shard_columns(manifest: DatasetManifest) -> tuple[str, ...]:
    """Return the columns of a split's shards, in the order of a data layer's tops."""
    has_weight = manifest.table is not None and manifest.table.weight is not None
    return (*SHARD_COLUMNS, "weight") if has_weight else SHARD_COLUMNS


def _sample_shapes(manifest: DatasetManifest) -> tuple[Shape, ...]:
    n_labels = 1 if manifest.table is None else len(manifest.table.labels)
    shapes: tuple[Shape, ...] = (manifest.sample_shape, () if n_labels == 1 else (n_labels,), ())
    return shapes[: len(shard_columns(manifest))]


def open_layer_dataset(layer: caffe_pb2.LayerParameter, root: Path) -> Dataset:
    """Return the source of a Data, ImageData or HDF5Data layer as a dataset of a single shard.

    Paths are relative to ``root``. The source is opened once to read the size, and closed again.

    Raises:
        DataError: The source is missing, empty or damaged.
        NetError: The layer reads no files, or its options do not fit together.
    """
    source = open_source(layer, root)
    try:
        shard = ShardInfo(f'source of layer "{layer.name}"', len(source))
        shapes = source.sample_shapes()
    finally:
        source.close()
    return Dataset(
        columns=tuple(layer.top),
        sample_shapes=shapes,
        shards=[shard],
        open_shard=lambda _: source,
        is_transformed=source.is_transformed,
        preprocessing=_preprocessing_of_layer(layer.image_data_param, shapes) if layer.type == "ImageData" else None,
    )


def _preprocessing_of_layer(param: caffe_pb2.ImageDataParameter, shapes: Sequence[Shape]) -> ImagePreprocessing:
    channels, height, width = shapes[0]
    return ImagePreprocessing(
        gray=not param.is_color,
        decode_color=True,
        height=param.new_height,
        width=param.new_width,
        dtype="uint8",
        sample_shape=(channels, height, width) if param.new_height else None,
    )


def _local_shard(folder: Path, manifest: DatasetManifest, shard: int) -> Path:
    return folder / manifest.shards[shard].file


def shard_source(path: Path, manifest: DatasetManifest, color: bool | None) -> SampleSource:
    """Return the source of a split's local shard; ``color`` as in ``open_dataset``."""
    return _open_file(path, manifest.shard_format, color, shard_columns(manifest))


def _open_file(
    path: Path, shard_format: ShardFormat, color: bool | None, columns: tuple[str, ...] = SHARD_COLUMNS
) -> SampleSource:
    return Hdf5Source((path,), columns) if shard_format == "hdf5" else LmdbSource(path, color=color)


def read_rows(path: DataPath, shard_format: ShardFormat, start: int, stop: int) -> npt.NDArray[Any]:
    """Return the samples' data in rows [start, stop) of a shard's file, including excluded rows.

    Raises:
        DataError: The shard is missing or damaged.
    """
    with local_copy(path) as local:
        source = _open_file(local, shard_format, None)
        try:
            return source.read(start, stop - start)[0]
        except CaffeImportError as error:
            raise DataError(str(error)) from error
        finally:
            source.close()


def wrong_count(name: str, expected: int, n_samples: int) -> str:
    """Return the message about a shard with another number of samples than in the manifest."""
    return f"shard {name}: manifest says {expected:,} samples, found {n_samples:,}; {REPAIR}"
