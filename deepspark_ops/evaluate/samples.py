"""The samples that a net is scored on: every one once, in their order, transformed as in phase TEST."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from caffe_import.errors import NetError
from caffe_import.layer_registry import Shape
from caffe_import.proto import caffe_pb2
from caffe_import.transform import TransformOptions, transform_batch, transform_options
from deepspark_ops.errors import DataError
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.reader import Dataset, open_dataset, open_layer_dataset

Column = npt.NDArray[Any]
_READS_FILES = ("Data", "ImageData", "HDF5Data")


@dataclass(frozen=True)
class LayerData:
    """One data layer, where its samples come from, and what it does to them.

    Attributes:
        layer: The layer's message, phase TEST.
        dataset: Samples as stored; column i feeds top i.
        transform: Applied to the first top, or None where the layer applies none. Never mirrors.
    """

    layer: caffe_pb2.LayerParameter
    dataset: Dataset
    transform: TransformOptions | None


@dataclass(frozen=True)
class Batch:
    """Consecutive samples.

    Attributes:
        start: Position of the first.
        stored: Blob -> values as stored, before the transform (images uint8 or float32, NCHW, BGR).
        feeds: Blob -> float32, as the net takes it.
    """

    start: int
    stored: Mapping[str, Column]
    feeds: Mapping[str, Column]

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(next(iter(self.feeds.values())))


class Samples:
    """All samples of a net's data layers, read side by side. One thread at a time; close it.

    Attributes:
        layers: The data layers.
        n_samples: Samples of each of them.
        name: What they are called in a report: the dataset's folder, or the first layer's source.
        class_names: In label order; empty if unknown.
    """

    def __init__(self, layers: Sequence[LayerData], *, name: str) -> None:
        """Take the layers' data.

        Raises:
            DataError: The layers' sources have different lengths.
        """
        counts = {data.layer.name: data.dataset.n_samples for data in layers}
        if len(set(counts.values())) > 1:
            found = ", ".join(f'"{layer}" {count:,}' for layer, count in counts.items())
            msg = f"data layers of different lengths: {found}; samples of the same position must belong together"
            raise DataError(msg)
        self.layers = tuple(layers)
        self.n_samples = next(iter(counts.values()))
        self.name = name
        manifest = layers[0].dataset.manifest
        self.class_names = manifest.class_names if manifest else ()

    def sample_shapes(self, layer: caffe_pb2.LayerParameter) -> tuple[Shape, ...]:
        """Return the shapes of one sample's tops before the crop: the ``SampleShapes`` of these data."""
        for data in self.layers:
            if data.layer.name == layer.name:
                return data.dataset.sample_shapes
        msg = f'layer "{layer.name}" ({layer.type}) has no samples here'
        raise NetError(msg, layer=layer.name)

    def batches(self, batch_size: int) -> Iterator[Batch]:
        """Yield every sample once, in order, ``batch_size`` at a time; the last batch may be shorter."""
        for start in range(0, self.n_samples, batch_size):
            yield self.read(start, min(batch_size, self.n_samples - start))

    def read(self, start: int, count: int) -> Batch:
        """Return samples [start, start + count).

        Raises:
            DataError: A shard is missing or damaged.
        """
        stored: dict[str, Column] = {}
        feeds: dict[str, Column] = {}
        for data in self.layers:
            columns = _read_range(data.dataset, start, count)
            for position, top in enumerate(data.layer.top):
                stored[top] = columns[position]
                is_image = position == 0 and data.transform is not None
                feeds[top] = (
                    transform_batch(columns[position], data.transform, phase="TEST")
                    if is_image and data.transform is not None
                    else columns[position].astype(np.float32)
                )
        return Batch(start, stored, feeds)

    def close(self) -> None:
        """Close every file."""
        for data in self.layers:
            data.dataset.close()

    def __enter__(self) -> Samples:
        """Return the samples themselves."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close every file."""
        self.close()


class SampleDigest:
    """SHA-256 over the stored values of samples: equal digests mean equal samples in equal order."""

    def __init__(self) -> None:
        """Start at nothing."""
        self._digest = hashlib.sha256()

    def add(self, batch: Batch) -> None:
        """Add the next samples. Sample by sample, so that the batch size does not matter."""
        columns = [np.ascontiguousarray(column) for _, column in sorted(batch.stored.items())]
        for row in range(len(batch)):
            for column in columns:
                self._digest.update(column[row].tobytes())

    def text(self) -> str:
        """Return ``sha256:<hex>``."""
        return f"sha256:{self._digest.hexdigest()}"


def open_samples(
    layers: Sequence[caffe_pb2.LayerParameter], *, dataset: Path | None, split: Literal["train", "test"], root: Path
) -> Samples:
    """Open what the data layers read.

    Args:
        layers: The net's data layers in phase TEST (their sources: of the phase that belongs to ``split``).
        dataset: Ingested dataset that replaces the layers' sources; None for their own.
        split: Part of the dataset.
        root: Folder that the layers' own relative paths start from.

    Raises:
        DataError: The data are missing or damaged.
        NetError: A layer cannot be fed from these data.
    """
    if not layers:
        msg = "the net has no data layer in phase TEST; needed: Data, ImageData or HDF5Data, or a dataset and an Input"
        raise NetError(msg)
    if dataset is None:
        opened = [_open_own(layer, root) for layer in layers]
        return Samples(opened, name=source_of(layers[0]))
    folder = DatasetPaths(dataset).split(split)
    return Samples([_open_from(folder, layer, root) for layer in layers], name=str(dataset))


def source_of(layer: caffe_pb2.LayerParameter) -> str:
    """Return the text of the layer's ``source``, empty for layers that have none."""
    return {
        "Data": layer.data_param.source,
        "ImageData": layer.image_data_param.source,
        "HDF5Data": layer.hdf5_data_param.source,
    }.get(layer.type, "")


def _open_own(layer: caffe_pb2.LayerParameter, root: Path) -> LayerData:
    if layer.type not in _READS_FILES:
        msg = (
            f'layer "{layer.name}" ({layer.type}) reads no files, so its samples are not known; '
            "give an ingested dataset (option dataset)"
        )
        raise NetError(msg, layer=layer.name)
    opened = open_layer_dataset(layer, root)
    return LayerData(layer, opened, _transform(layer, root) if opened.is_transformed else None)


def _open_from(folder: Path, layer: caffe_pb2.LayerParameter, root: Path) -> LayerData:
    transform = _transform(layer, root)
    return LayerData(layer, open_dataset(folder, color=transform.color), transform)


def _transform(layer: caffe_pb2.LayerParameter, root: Path) -> TransformOptions:
    options = transform_options(layer.transform_param, root=root, layer=layer.name)
    # Caffe mirrors at random in TEST too; a score or an exported model must not depend on a coin.
    return replace(options, mirror=False)


def _read_range(dataset: Dataset, start: int, count: int) -> list[Column]:
    """Read [start, start + count) of all shards laid end to end."""
    pieces: list[tuple[Column, ...]] = []
    first = 0
    for index, shard in enumerate(dataset.shards):
        low, high = max(start, first), min(start + count, first + shard.n_samples)
        if low < high:
            pieces.append(dataset.read(index, low - first, high - low))
        first += shard.n_samples
    return [np.concatenate(columns) if len(columns) > 1 else columns[0] for columns in zip(*pieces, strict=True)]
