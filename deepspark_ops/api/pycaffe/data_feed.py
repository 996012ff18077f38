"""Batches for the data layers of a net, in Caffe's order: from the first record on, and around the end."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from caffe_import.net.layer_registry import Phase, Shape
from caffe_import.net.net_spec import NetSpec
from caffe_import.proto import caffe_pb2
from deepspark_ops.errors import DataError
from deepspark_ops.train.data.data_binding import FED_BY_COLUMN, DataBinding
from deepspark_ops.train.data.data_layers import DrawnLayer, FedLayer

ArrayOf = Callable[[str, str], npt.NDArray[np.float32]]


class DataFeed:
    """Fills the tops of data layers. Sources are open from the first batch to ``close``. One thread at a time."""

    def __init__(self, phase: Phase) -> None:
        """Open nothing yet."""
        self._phase: Phase = phase
        self._net: NetSpec | None = None
        self._sources: _Sources | None = None
        self._next_rows: dict[str, int] = {}

    def sample_shapes(self, layer: caffe_pb2.LayerParameter) -> tuple[Shape, ...]:
        """Return the shapes of a sample of a data layer, a shape per top.

        Raises:
            CaffeImportError, DataError: Its source is missing or damaged.
        """
        binding = DataBinding(None, Path.cwd())
        try:
            return binding.sample_shapes(self._phase, layer)
        finally:
            binding.close()

    def bind(self, net: NetSpec) -> None:
        """Fill the data layers of this net from now on."""
        self.close()
        self._net = net

    def fill(self, layers: Sequence[str], array_of: ArrayOf, seed: int) -> None:
        """Write the next batch of those data layers that are among ``layers``.

        Raises:
            CaffeImportError, DataError: A source is missing or damaged, or a label is no class of the net.
        """
        assert self._net is not None, "bound before the first pass"
        self._sources = self._sources or _Sources(self._net)
        for position, fed in enumerate(self._sources.fed):
            if fed.name not in layers:
                continue
            row = self._next_rows.get(fed.name, 0)
            columns = fed.read_wrapped(row, fed.batch_size)
            if not fed.has_own_size(columns):
                sample, shape = fed.samples.sample_name(row), columns[0].shape[1:]
                msg = (
                    f'layer "{fed.name}": {sample} has shape {shape}, the first sample another; a data layer of ds.Net'
                    " reads samples of one size: give a net with an Input layer, and reshape it"
                )
                raise DataError(msg)
            fed.fill(columns, {top: array_of("data", top) for top in fed.tops}, (seed, position))
            self._next_rows[fed.name] = (row + fed.batch_size) % fed.samples.n_samples
        for position, drawn in enumerate(self._sources.drawn):
            if drawn.name in layers:
                drawn.fill({top: array_of("data", top) for top in drawn.tops}, (seed, position))

    def close(self) -> None:
        """Close the sources; the next batch opens the sources again, at the next record."""
        if self._sources is not None:
            self._sources.close()
            self._sources = None


class _Sources:
    """The open sources of a net; closed with this object, too."""

    def __init__(self, net: NetSpec) -> None:
        binding = DataBinding(None, Path.cwd())
        self.close = weakref.finalize(self, binding.close)
        # Input and MemoryData layers are filled by the caller.
        read = replace(net, layers=tuple(layer for layer in net.layers if layer.type not in FED_BY_COLUMN))
        self.fed: tuple[FedLayer, ...] = binding.fed_layers(read)
        self.drawn: tuple[DrawnLayer, ...] = binding.drawn_layers(read)
