"""Batches for a case's data layers, read in order from the first row, as in Caffe."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.data import SampleSource, open_source, read_wrapped, sample_shapes_of
from caffe_import.data.transform import TransformOptions, transform_batch, transform_options
from caffe_import.net.layer_registry import Phase, Shape
from caffe_import.net.net_spec import LayerSpec, NetSpec
from caffe_import.proto import caffe_pb2
from caffe_import.tf_graph.builder import fed_blobs

Array = npt.NDArray[Any]

# Sources, lists and mean files of a case are relative to its folder, which is the working directory.
ROOT = Path()


def sample_shapes(layer: caffe_pb2.LayerParameter) -> tuple[Shape, ...]:
    """Return the shapes of a data layer's samples, for ``build_net_spec``."""
    return sample_shapes_of(layer, ROOT)


class LayerBatches:
    """The batches of one data layer. Not thread-safe; closes its source when the ``with`` block ends.

    Attributes:
        layer: The layer.
        source: What it reads.
        options: Its transform.
    """

    def __init__(self, layer: LayerSpec, phase: Phase) -> None:
        """Open the layer's source at the first row."""
        self.layer = layer
        self.source: SampleSource = open_source(layer.message, ROOT)
        self.options: TransformOptions = transform_options(layer.message.transform_param, root=ROOT, layer=layer.name)
        self._phase: Phase = phase
        self._position = 0
        self._rng = np.random.default_rng(0)

    def __enter__(self) -> LayerBatches:
        return self

    def __exit__(self, *_: object) -> None:
        self.source.close()

    def read(self) -> list[Array]:
        """Return the next batch as stored, one array per top."""
        batch_size = self.layer.definition.top_shapes[0][0]
        columns = read_wrapped(self.source, self._position, batch_size)
        self._position += batch_size
        return columns

    def transformed(self, columns: list[Array]) -> list[Array]:
        """Return a batch of ``read`` as the net sees it, float32."""
        first, *other_columns = columns
        if self.source.is_transformed:
            first = transform_batch(first, self.options, phase=self._phase, rng=self._rng)
        return [np.asarray(column, np.float32) for column in (first, *other_columns)]


class NetBatches:
    """The batches of all data layers of a net. Not thread-safe; closes its sources when the ``with`` block ends."""

    def __init__(self, net: NetSpec) -> None:
        """Open every source at the first row."""
        fed = fed_blobs(net)
        self._layers = [
            LayerBatches(layer, net.phase) for layer in net.layers if layer.tops and set(layer.tops) <= set(fed)
        ]

    def __enter__(self) -> NetBatches:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every source."""
        for batches in self._layers:
            batches.source.close()

    def next(self) -> dict[str, Array]:
        """Return blob -> the next batch."""
        feeds: dict[str, Array] = {}
        for batches in self._layers:
            columns = batches.transformed(batches.read())
            feeds.update(zip(batches.layer.tops, columns, strict=False))
        return feeds

    def stacked(self, count: int) -> Mapping[str, Array]:
        """Return blob -> the next ``count`` batches, (count, *blob shape)."""
        rows = [self.next() for _ in range(count)]
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
