"""The samples for scoring a net: every sample once, in order, transformed as in phase TEST."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.data.sample_source import compacted, join_columns
from caffe_import.errors import NetError
from caffe_import.net.layer_registry import Shape
from caffe_import.net.net_spec import NetSpec
from deepspark_ops.config.shared_options.task import TaskName
from deepspark_ops.errors import DataError
from deepspark_ops.shards.manifest import SplitName
from deepspark_ops.train.data.data_binding import DRAWS_ITSELF, FILLS_ITSELF, DataBinding
from deepspark_ops.train.data.data_layers import FedLayer

Column = npt.NDArray[Any]
_HASH_BYTES = 8
_CONVERT = "or export the deploy net and its weights by deepspark convert"


@dataclass(frozen=True)
class Batch:
    """Consecutive samples.

    Attributes:
        start: Position of the first.
        count: Number of samples.
        stored: Blob -> values as stored, before the transform, shape (count, ...); images are NCHW, BGR.
        feeds: Blob -> float32 of the blob's full shape, as the net takes it; rows from ``count`` on repeat the last.
            A sample of another size than the first has a batch of its own, without such rows.
    """

    start: int
    count: int
    stored: Mapping[str, Column]
    feeds: Mapping[str, npt.NDArray[np.float32]]


class Samples:
    """All samples of a net's data layers, read side by side. For a single thread at a time.

    Attributes:
        layers: The data layers; their transforms never mirror.
        n_samples: Samples of each of them.
        batch_size: Samples of one pass of the net.
        class_names: In label order; empty if unknown.
        split_rule: How they were told from training samples; None if unknown.
    """

    def __init__(self, layers: Sequence[FedLayer]) -> None:
        """Take the layers.

        Raises:
            DataError: The layers' sources have different lengths.
        """
        counts = {layer.name: layer.samples.n_samples for layer in layers}
        if len(set(counts.values())) > 1:
            lengths = ", ".join(f'"{layer}" {count:,}' for layer, count in counts.items())
            msg = f"data layers of different lengths: {lengths}; samples of the same position must belong together"
            raise DataError(msg)
        self.layers = tuple(layers)
        self.n_samples = layers[0].samples.n_samples
        self.batch_size = layers[0].batch_size
        manifest = layers[0].samples.dataset.manifest
        self.class_names = manifest.class_names if manifest else ()
        self.split_rule = manifest.split_rule if manifest else None
        self.table = manifest.table if manifest else None

    def answer_names(self, task: TaskName, class_names: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """Return the names of a task's answers, in order: a table's label columns, or the classes.

        ``class_names`` are of the net, where they may differ from those of these samples.
        """
        if task in ("embedding", "reconstruction"):
            return ()
        if self.table is not None and self.table.label_kind == "value":
            return self.table.labels
        return () if task == "regression" else self.class_names if class_names is None else class_names

    def batches(self, start: int = 0, stop: int | None = None) -> Iterator[Batch]:
        """Yield the samples from ``start`` to before ``stop`` once, in order, ``batch_size`` at a time.

        The last batch may hold fewer. Samples of several sizes come one at a time. Without arguments these are all
        samples.
        """
        end = self.n_samples if stop is None else min(stop, self.n_samples)
        for first in range(start, end, self.batch_size):
            yield from self._of_one_size(first, min(self.batch_size, end - first))

    def stored(self, index: int) -> Column:
        """Return the first blob of a sample as stored, before the transform; an image is (C, H, W), BGR.

        Raises:
            DataError: A shard is missing or damaged.
        """
        layer = self.layers[0]
        sample: Column = layer.samples.read_wrapped(index, 1)[layer.columns[0]][0]
        return sample

    def names(self, start: int, count: int) -> list[str] | None:
        """Return what the source calls samples [start, start + count): files, an LMDB's keys; None without names."""
        return self.layers[0].samples.keys(start, count)

    def read(self, start: int, count: int) -> Batch:
        """Return samples [start, start + count); ``count`` is at most ``batch_size``.

        Raises:
            DataError: A shard is missing or damaged, or the samples have several sizes.
        """
        batches = list(self._of_one_size(start, count))
        if len(batches) > 1:
            sizes = " and ".join(str(shape) for shape in sorted({_size(part) for part in batches})[:2])
            msg = f"samples {start} to {start + count - 1} have several sizes, such as {sizes}; allowed: one size"
            raise DataError(msg)
        return batches[0]

    def _of_one_size(self, start: int, count: int) -> Iterator[Batch]:
        """Yield samples [start, start + count) together, or one at a time if a size differs from the first sample's."""
        read = [layer.read_unlabelled(start, count) for layer in self.layers]
        if all(layer.has_own_size(columns) for layer, columns in zip(self.layers, read, strict=True)):
            yield self._batch(start, read, [layer.tops for layer in self.layers])
            return
        for row in range(count):
            single = [tuple(compacted(column[row : row + 1]) for column in columns) for columns in read]
            shapes = [layer.shapes_of_single(columns) for layer, columns in zip(self.layers, single, strict=True)]
            yield self._batch(start + row, single, shapes)

    def _batch(self, start: int, read: Sequence[tuple[Column, ...]], shapes: Sequence[Mapping[str, Shape]]) -> Batch:
        stored: dict[str, Column] = {}
        feeds: dict[str, npt.NDArray[np.float32]] = {}
        for layer, columns, layer_shapes in zip(self.layers, read, shapes, strict=True):
            stored.update({top: columns[at] for top, at in zip(layer.tops, layer.columns, strict=True)})
            targets = {top: np.empty(shape, np.float32) for top, shape in layer_shapes.items()}
            n_rows = next(iter(layer_shapes.values()))[0]
            layer.fill([_padded(column, n_rows) for column in columns], targets, (0,))
            feeds.update(targets)
        return Batch(start, len(read[0][0]), stored, feeds)


class SampleDigest:
    """Short hashes of each sample's stored values, independent of the position, and a hash over all samples.

    Hashes of ranges of samples are put together by ``merge``, in any order.
    """

    def __init__(self) -> None:
        """Start at nothing."""
        self._content: dict[int, bytes] = {}

    def add(self, batch: Batch) -> None:
        """Hash sample by sample, so the batch size does not matter."""
        columns = [np.ascontiguousarray(column) for _, column in sorted(batch.stored.items())]
        hashes = []
        for row in range(batch.count):
            hashed = hashlib.blake2b(digest_size=_HASH_BYTES)
            for column in columns:
                hashed.update(np.ascontiguousarray(column[row]).data)
            hashes.append(hashed.digest())
        self._content[batch.start] = b"".join(hashes)

    def merge(self, other: SampleDigest) -> None:
        """Add the hashes of other samples."""
        self._content |= other._content

    def text(self) -> str:
        """Return ``sha256:<hex>`` of the samples' hashes in order; equal for equal samples in equal order."""
        digest = hashlib.sha256()
        for start in sorted(self._content):
            digest.update(self._content[start])
        return f"sha256:{digest.hexdigest()}"

    def of_batch(self, start: int) -> npt.NDArray[np.uint64]:
        """Return the hashes of the batch at ``start``."""
        return np.frombuffer(self._content[start], "<u8").astype(np.uint64)

    def content(self) -> npt.NDArray[np.uint64]:
        """Return a hash of each sample's values, (n_samples,)."""
        joined = b"".join(self._content[start] for start in sorted(self._content))
        return np.frombuffer(joined, "<u8").astype(np.uint64)


def require_sample_set(net: NetSpec) -> None:
    """Refuse a net of phase TEST without a set of samples to score: a data layer draws at random, or none reads data.

    Raises:
        NetError: Names the layer that draws, or says that no layer reads data.
    """
    drawn = [layer.name for layer in net.layers if layer.type in DRAWS_ITSELF]
    if drawn:
        msg = (
            f'layer "{drawn[0]}" draws its windows at random, so there is no set of samples to score; give the TEST '
            f"net a Data or ImageData layer, {_CONVERT}"
        )
        raise NetError(msg, layer=drawn[0])
    if not any(layer.definition.is_data and layer.type not in FILLS_ITSELF for layer in net.layers):
        msg = (
            "the net has no data layer to feed in phase TEST, so there are no samples to score; add a data layer"
            f" with include {{ phase: TEST }}, {_CONVERT}"
        )
        raise NetError(msg)


def scored_layers(binding: DataBinding, net: NetSpec, split: SplitName) -> list[FedLayer]:
    """Return the data layers of a net of phase TEST with the data of ``split``; their transforms never mirror.

    Raises:
        DataError: The data are missing or damaged.
        NetError: The net has no data layer, or a layer cannot be fed from them.
    """
    require_sample_set(net)
    if split == "validation":
        binding = replace(binding, split=split)
    # The binding reads the split that belongs to a net's phase; the transform stays that of phase TEST.
    fed = binding.fed_layers(replace(net, phase="TRAIN" if split == "train" else "TEST"))
    return [_without_chance(layer) for layer in fed]


def _without_chance(layer: FedLayer) -> FedLayer:
    """Caffe mirrors at random in TEST too; a score or an exported model must not depend on a coin."""
    transform = None if layer.transform is None else replace(layer.transform, mirror=False)
    return replace(layer, transform=transform, phase="TEST")


def _size(batch: Batch) -> Shape:
    return next(iter(batch.feeds.values())).shape[1:]


def _padded(column: Column, length: int) -> Column:
    missing = length - len(column)
    return join_columns([column, np.repeat(column[-1:], missing, axis=0)]) if missing else column
