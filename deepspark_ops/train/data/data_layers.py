"""A net's data layers as a worker feeds them: what they read or draw, and how a pass is filled in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from caffe_import.data.transform import TransformOptions, transform_batch
from caffe_import.data.window_batches import WindowBatches
from caffe_import.net.layer_registry import Phase, Shape
from deepspark_ops.errors import DataError
from deepspark_ops.shards.preprocessing import ImagePreprocessing
from deepspark_ops.train.data.label_check import LabelColumn
from deepspark_ops.train.data.sample_cache import Column, SampleCache


@dataclass(frozen=True)
class FedLayer:
    """One data layer and where its tops' values come from.

    Attributes:
        name: The layer's.
        tops: Blob -> full shape with the batch axis first, in the order of the columns.
        columns: Column of the samples that each top takes.
        samples: Where they are read.
        transform: Applies to column 0; None for none.
        stream: Layers of one stream get the same samples at each pass.
        phase: Decides what the transform does.
        labels: Columns that the net reads as classes; ``read`` and ``read_wrapped`` look at them.
    """

    name: str
    tops: Mapping[str, Shape]
    columns: tuple[int, ...]
    samples: SampleCache
    transform: TransformOptions | None
    stream: str
    phase: Phase
    labels: tuple[LabelColumn, ...] = ()

    @property
    def batch_size(self) -> int:
        """Samples of one pass."""
        return next(iter(self.tops.values()))[0]

    @property
    def preprocessing(self) -> ImagePreprocessing | None:
        """The steps from an image file to a sample of column 0; None where the steps are not known."""
        return self.samples.dataset.preprocessing

    def read(self, shard: int, start: int, count: int) -> tuple[Column, ...]:
        """Return samples ``[start, start + count)`` of one shard, one array per column; read them, never write them.

        Raises:
            DataError: The shard is damaged, or a label is none of the classes of the layer that reads it.
        """
        columns = self.samples.read(shard, start, count)
        self._check_labels(columns, self.samples.first_of(shard) + start)
        return columns

    def read_wrapped(self, position: int, count: int) -> tuple[Column, ...]:
        """Return ``count`` samples from ``position`` in the whole on, as ``SampleCache.read_wrapped``.

        Raises:
            DataError: As ``read``.
        """
        columns = self.samples.read_wrapped(position, count)
        self._check_labels(columns, position)
        return columns

    def _check_labels(self, columns: Sequence[Column], position: int) -> None:
        for labels in self.labels:
            outside = labels.first_outside(columns[labels.column])
            if outside is not None:
                row, label = outside
                raise DataError(labels.finding(label, self.samples.sample_name(position + row)))

    def fill(
        self, columns: Sequence[Column], targets: Mapping[str, npt.NDArray[np.float32]], key: tuple[int, ...]
    ) -> None:
        """Write one pass' values into ``targets``: top -> float32 array of the top's full shape.

        Args:
            columns: Values of ``batch_size`` samples, as read.
            targets: Where they go.
            key: Seed of what is drawn at random.
        """
        for (top, shape), position in zip(self.tops.items(), self.columns, strict=True):
            values = columns[position]
            if position == 0 and self.transform is not None:
                rng = np.random.default_rng(key) if self.transform.is_random(self.phase) else None
                side = self.transform.crop_size
                cut = (*values.shape[:2], side, side) if side else values.shape
                # Written where it belongs, unless the top has the values in other axes.
                out = targets[top] if targets[top].shape == cut else None
                values = transform_batch(values, self.transform, phase=self.phase, rng=rng, out=out)
                if out is not None:
                    continue
            targets[top][...] = values.reshape(shape)


@dataclass(frozen=True)
class DrawnLayer:
    """A data layer that draws its samples at random (WindowData). They have no order, so that nothing is leased.

    Attributes:
        name: The layer's.
        tops: Blob -> full shape with the batch axis first: windows, then labels.
        windows: Where they are drawn from; used by one thread.
    """

    name: str
    tops: Mapping[str, Shape]
    windows: WindowBatches

    def fill(self, targets: Mapping[str, npt.NDArray[np.float32]], key: tuple[int, ...]) -> None:
        """Write one pass into ``targets``, top -> float32 array of its full shape; ``key`` is the seed."""
        drawn = self.windows.draw(np.random.default_rng(key))
        for (top, shape), values in zip(self.tops.items(), drawn, strict=True):
            targets[top][...] = values.reshape(shape)


@dataclass(frozen=True)
class NetFeed:
    """The data of one test net.

    Attributes:
        layers: Its data layers.
        n_batches: test_iter.
        drawn: Its data layers that draw at random.
    """

    layers: tuple[FedLayer, ...]
    n_batches: int
    drawn: tuple[DrawnLayer, ...] = ()
