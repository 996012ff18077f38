"""A net's data layers in a worker: the samples read or drawn, and the filling of a pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from caffe_import.data.sample_source import image_shapes
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
        takes_sizes: May each sample have a size of its own? As in Caffe, in batches of one sample without a crop.
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
    takes_sizes: bool = False

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
            DataError: A shard is damaged, an image does not fit the net, or a label is none of the classes of the
                reading layer.
        """
        columns = self.read_unlabelled(position, count)
        self._check_labels(columns, position)
        return columns

    def read_unlabelled(self, position: int, count: int) -> tuple[Column, ...]:
        """Return the samples of ``read_wrapped`` without a check of the labels.

        Raises:
            DataError: A shard is damaged, or an image does not fit the net.
        """
        columns = self.samples.read_wrapped(position, count)
        shape = self.samples.dataset.sample_shapes[0]
        if 0 in self.columns and columns[0].shape[1:] != shape:
            for row, other_shape in enumerate(image_shapes(columns[0])):
                if other_shape != shape and (finding := self._unfit(shape, other_shape)):
                    sample = self.samples.sample_name(position + row)
                    msg = f'layer "{self.name}": {sample} has shape {other_shape}, the first sample {shape}; {finding}'
                    raise DataError(msg)
        return columns

    def _unfit(self, first: Shape, shape: Shape) -> str:
        """Return why an image of another shape than the first does not fit the net; empty if the image fits."""
        side = 0 if self.transform is None else self.transform.crop_size
        if not (side or self.takes_sizes) or len(shape) != len(first):
            return (
                "allowed: equal shapes, a crop_size in transform_param, or batch_size: 1 with a net that takes any"
                ' size; new_height and new_width of ImageData, or "deepspark ingest" with --resize-height and'
                " --resize-width, make one size"
            )
        if shape[0] != first[0]:
            return "allowed: equal channels; set force_color or force_gray in transform_param (is_color of ImageData)"
        if side and min(shape[1:]) < side:
            return f"allowed: at least crop_size={side} pixels in height and width"
        if self.transform is not None and self.transform.mean is not None:
            return "allowed: images of the size of mean_file; mean_value fits images of all sizes"
        return ""

    def _check_labels(self, columns: Sequence[Column], position: int) -> None:
        for labels in self.labels:
            column = columns[labels.column]
            parts = [column] if column.dtype != np.object_ else [values[np.newaxis] for values in column]
            for first, part in enumerate(parts):
                outside = labels.first_outside(part)
                if outside is not None:
                    row, label = outside
                    raise DataError(labels.finding(label, self.samples.sample_name(position + first + row)))

    def has_own_size(self, columns: Sequence[Column]) -> bool:
        """Return whether samples, as read, have the size of the first sample, and so of ``tops``."""
        if not self.takes_sizes:
            return True
        return columns[0].shape[1:] == self.samples.dataset.sample_shapes[0]

    def shapes_of(self, columns: Sequence[Column]) -> Mapping[str, Shape]:
        """Return top -> full shape for the samples of a pass, as read: ``tops``, but for a sample of another size."""
        return self.tops if self.has_own_size(columns) else self.shapes_of_single(columns)

    def shapes_of_single(self, columns: Sequence[Column]) -> Mapping[str, Shape]:
        """Return top -> full shape for a pass of a single sample."""
        return {
            top: (1, *(columns[0][0].shape if column == 0 else shape[1:]))
            for (top, shape), column in zip(self.tops.items(), self.columns, strict=True)
        }

    def fill(
        self, columns: Sequence[Column], targets: Mapping[str, npt.NDArray[np.float32]], key: tuple[int, ...]
    ) -> None:
        """Write the values of a pass into ``targets``: top -> float32 array of the shape that ``shapes_of`` returns.

        Args:
            columns: Values of ``batch_size`` samples, as read.
            targets: Receive the values.
            key: Seed of the random draws.
        """
        for top, position in zip(self.tops, self.columns, strict=True):
            values = columns[position]
            if position == 0 and self.transform is not None:
                rng = np.random.default_rng(key) if self.transform.is_random(self.phase) else None
                side = self.transform.crop_size
                cut = (len(values), values[0].shape[0], side, side) if side else values.shape
                # Written into the target itself, unless the top has the values in other axes.
                out = targets[top] if targets[top].shape == cut else None
                values = transform_batch(values, self.transform, phase=self.phase, rng=rng, out=out)
                if out is not None:
                    continue
            targets[top][...] = values.reshape(targets[top].shape)


def leased_layer(stream: Sequence[FedLayer]) -> FedLayer:
    """Return the layer of a stream whose samples the leases count: the layer with the smallest batch.

    The batches of other layers are multiples of this layer's batch.
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
