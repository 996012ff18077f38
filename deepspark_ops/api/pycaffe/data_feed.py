"""What the data layers of a net read, batch after batch, as Caffe's do: from the first record on, around the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from caffe_import.net.layer_registry import Phase, Shape
from caffe_import.net.net_spec import NetSpec
from caffe_import.proto import caffe_pb2
from deepspark_ops.train.data.data_binding import FED_BY_COLUMN, DataBinding
from deepspark_ops.train.data.data_layers import DrawnLayer, FedLayer

ArrayOf = Callable[[str, str], npt.NDArray[np.float32]]


class DataFeed:
    """Fills the tops of a net's data layers. One thread at a time."""

    def __init__(self, phase: Phase) -> None:
        """Open nothing yet."""
        self._phase: Phase = phase
        self._binding = DataBinding(None, Path.cwd())
        self._fed: tuple[FedLayer, ...] = ()
        self._drawn: tuple[DrawnLayer, ...] = ()
        self._places: dict[str, int] = {}

    def sample_shapes(self, layer: caffe_pb2.LayerParameter) -> tuple[Shape, ...]:
        """Return the shapes of one sample of a data layer, a top each.

        Raises:
            CaffeImportError, DataError: Its source is missing or damaged.
        """
        return self._binding.sample_shapes(self._phase, layer)

    def bind(self, net: NetSpec) -> None:
        """Take the data layers of a net.

        Raises:
            CaffeImportError, DataError: A source is missing or damaged.
        """
        # Input and MemoryData layers are filled by the caller.
        read = replace(net, layers=tuple(layer for layer in net.layers if layer.type not in FED_BY_COLUMN))
        self._fed = self._binding.fed_layers(read)
        self._drawn = self._binding.drawn_layers(net)

    def fill(self, layers: Sequence[str], array_of: ArrayOf, seed: int) -> None:
        """Write the next batch of those data layers that are among ``layers``.

        Raises:
            DataError: A source is damaged, or a label is no class of the net.
        """
        for position, fed in enumerate(self._fed):
            if fed.name not in layers:
                continue
            place = self._places.get(fed.name, 0)
            columns = fed.read_wrapped(place, fed.batch_size)
            fed.fill(columns, {top: array_of("data", top) for top in fed.tops}, (seed, position))
            self._places[fed.name] = (place + fed.batch_size) % fed.samples.n_samples
        for position, drawn in enumerate(self._drawn):
            if drawn.name in layers:
                drawn.fill({top: array_of("data", top) for top in drawn.tops}, (seed, position))
