"""A net's data layers in a worker: the samples read or drawn, and the filling of a pass."""

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
    """A data layer and the source of the tops' values.

    Attributes:
        name: The layer's.
        tops: Blob -> full shape with the batch axis first, in the order of the columns.
        columns: Column of the samples for each top.
        samples: The samples' source.
        transform: Applies to column 0; None without a transform.
        stream: Layers of the same stream advance side by side: a batch of one layer comes with a batch of the others.
        phase: Decides the transform's random parts.
        labels: Columns that the net reads as classes; ``read_wrapped`` checks the labels.
        shuffles: Does the layer ask for an order of its own?
    """

    name: str
    tops: Mapping[str, Shape]
    columns: tuple[int, ...]
    samples: SampleCache
    transform: TransformOptions | None
    stream: str
    phase: Phase
    labels: tuple[LabelColumn, ...] = ()
    shuffles: bool = False

    @property
    def batch_size(self) -> int:
        """Samples of a pass."""
        return next(iter(self.tops.values()))[0]

    @property
    def preprocessing(self) -> ImagePreprocessing | None:
        """The steps from an image file to a sample of column 0; None if the steps are unknown."""
        return self.samples.dataset.preprocessing

    def read_wrapped(self, position: int, count: int) -> tuple[Column, ...]:
        """Return ``count`` samples from ``position`` in the whole on, as ``SampleCache.read_wrapped``.

        Raises:
            DataError: A shard is damaged, or a label is none of the classes of the reading layer.
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
        """Write the values of a pass into ``targets``: top -> float32 array of the top's full shape.

        Args:
            columns: Values of ``batch_size`` samples, as read.
            targets: Receive the values.
            key: Seed of the random draws.
        """
        for (top, shape), position in zip(self.tops.items(), self.columns, strict=True):
            values = columns[position]
            if position == 0 and self.transform is not None:
                rng = np.random.default_rng(key) if self.transform.is_random(self.phase) else None
                side = self.transform.crop_size
                cut = (*values.shape[:2], side, side) if side else values.shape
                # Written into the target itself, unless the top has the values in other axes.
                out = targets[top] if targets[top].shape == cut else None
                values = transform_batch(values, self.transform, phase=self.phase, rng=rng, out=out)
                if out is not None:
                    continue
            targets[top][...] = values.reshape(shape)


def leased_layer(stream: Sequence[FedLayer]) -> FedLayer:
    """Return the layer of a stream whose samples the leases count: the layer with the smallest batch.

    The batches of the other layers are multiples of its batch, so they have several samples for each of its samples.
    """
    return min(stream, key=lambda layer: layer.batch_size)


@dataclass(frozen=True)
class DrawnLayer:
    """A data layer with random samples (WindowData). The samples have no order, so the exchange leases none.

    Attributes:
        name: The layer's.
        tops: Blob -> full shape with the batch axis first: windows, then labels.
        windows: The windows to draw from; used by a single thread.
    """

    name: str
    tops: Mapping[str, Shape]
    windows: WindowBatches

    def fill(self, targets: Mapping[str, npt.NDArray[np.float32]], key: tuple[int, ...]) -> None:
        """Write a pass into ``targets``, top -> float32 array of full shape; ``key`` is the seed."""
        drawn = self.windows.draw(np.random.default_rng(key))
        for (top, shape), values in zip(self.tops.items(), drawn, strict=True):
            targets[top][...] = values.reshape(shape)


@dataclass(frozen=True)
class NetFeed:
    """The data of a test net.

    Attributes:
        layers: The net's fed data layers.
        n_batches: test_iter.
        drawn: The net's data layers with random draws.
    """

    layers: tuple[FedLayer, ...]
    n_batches: int
    drawn: tuple[DrawnLayer, ...] = ()
