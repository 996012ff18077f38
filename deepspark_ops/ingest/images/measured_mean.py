"""The mean image of a database or a dataset that is there already, as Caffe's ``compute_image_mean`` measures it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Final

from caffe_import.data.leveldb_source import LeveldbSource
from caffe_import.data.lmdb_pages import check_pages
from caffe_import.data.lmdb_source import LmdbSource
from caffe_import.data.sample_source import Column
from caffe_import.errors import DataSourceError
from caffe_import.files.blob_proto import FloatArray
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.images.mean import PixelSums, mean_image, mean_values
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.manifest import is_dataset, present_splits, split_manifest_path
from deepspark_ops.shards.reader import open_dataset
from deepspark_ops.stores.store_path import DataPath, StorePath

_BLOCK_BYTES: Final = 1 << 25
_BLOCK_IMAGES: Final = 4_096


@dataclass(frozen=True)
class MeasuredMean:
    """The mean of the images of a source.

    Attributes:
        n_images: How many there are.
        image: Mean per pixel, (C, H, W), channels as the data have them (BGR).
        values: Mean per channel.
    """

    n_images: int
    image: FloatArray
    values: tuple[float, ...]


def measure_mean(source: Path, split: str, on_images: Callable[[int, int], None]) -> MeasuredMean:
    """Return the mean of all images of a source; a block of images is in memory at a time.

    Compressed images are decoded with the channels that they have. Sums of bytes are exact, whatever their number;
    Caffe adds in float32, so its sums lose digits beyond 65,793 images.

    Args:
        source: Folder of an LMDB, of a LevelDB, of an ingested dataset or of its split; datasets also in a store.
        split: Of the dataset.
        on_images: Called with the number of images read, and the total.

    Raises:
        ConfigError: The source is none of these, or its samples are no images.
        DataError: The source is damaged, empty, or holds images of several sizes.
    """
    sums: PixelSums | None = None
    first: Column | None = None
    n_done = 0
    for images, n_images in _image_blocks(source, split):
        if first is None or sums is None:
            first, sums = images[:1], PixelSums(images.shape[1:], images.dtype)
        if images.shape[1:] != first.shape[1:] or images.dtype != first.dtype:
            msg = (
                f"{source}: images behind position {n_done:,} are {images.dtype} {images.shape[1:]}, the first ones"
                f" {first.dtype} {first.shape[1:]}; a mean needs images of one size: resize when making the database"
            )
            raise DataError(msg)
        sums.add(images)
        n_done += len(images)
        on_images(n_done, n_images)
    if sums is None:
        msg = f"{source}: there are no images"
        raise DataError(msg)
    totals = [sums.values()]
    return MeasuredMean(n_done, mean_image(totals, n_done), mean_values(totals, n_done))


def _image_blocks(source: DataPath, split: str) -> Iterator[tuple[Column, int]]:
    """Yield images, (N, C, H, W), and how many there are in all."""
    if not isinstance(source, StorePath):
        for opened, mark in ((LmdbSource, "data.mdb"), (LeveldbSource, "CURRENT")):
            if (source / mark).is_file():
                yield from _database_blocks(source, opened)
                return
    if split_manifest_path(source).is_file():
        yield from _dataset_blocks(source)
        return
    splits = present_splits(source) if is_dataset(source) else []
    if split not in splits:
        msg = (
            f"{source}: split={split}: the dataset has {', '.join(splits)}"
            if splits
            else f"{source}: found neither an LMDB (data.mdb), nor a LevelDB (CURRENT), nor an ingested dataset"
            " (dataset.json); give one of these folders"
        )
        raise ConfigError(msg)
    yield from _dataset_blocks(DatasetPaths(source).split(split))


def _database_blocks(folder: Path, opened: type[LmdbSource | LeveldbSource]) -> Iterator[tuple[Column, int]]:
    try:
        if opened is LmdbSource:
            check_pages([folder])  # a damaged page would kill this process
        with closing(opened(folder, with_labels=False)) as source:
            n_images = len(source)
            start, count = 0, 1
            while start < n_images:
                images = source.read(start, min(count, n_images - start))[0]
                yield images, n_images
                start, count = start + len(images), _block_images(images)
    except DataSourceError as error:
        raise DataError(str(error)) from error


def _dataset_blocks(split_folder: DataPath) -> Iterator[tuple[Column, int]]:
    with open_dataset(split_folder) as dataset:
        if not dataset.is_transformed:
            msg = f"{split_folder}: its samples are rows of a table, which have no mean image; give images"
            raise ConfigError(msg)
        dataset.will_read(range(len(dataset.shards)))
        count = 1
        for shard, info in enumerate(dataset.shards):
            start = 0
            while start < info.n_samples:
                images = dataset.read(shard, start, min(count, info.n_samples - start))[0]
                yield images, dataset.n_samples
                start, count = start + len(images), _block_images(images)


def _block_images(images: Column) -> int:
    return max(1, min(_BLOCK_IMAGES, _BLOCK_BYTES // max(1, prod(images.shape[1:]) * images.itemsize)))
