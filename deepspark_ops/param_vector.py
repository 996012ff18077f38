"""The one float32 vector of a net: how it is cut into chunks, and where BatchNorm's running sums lie in it.

No framework and no Caffe message: the exchange server imports this module and must start in a blink.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import ConfigError

if TYPE_CHECKING:
    from caffe_import.net.param_layout import ParamLayout

Vector = npt.NDArray[np.float32]
ChunkRange = tuple[int, int]

CHUNK_FLOATS = 131_072
"""Floats of one chunk: half a MiB, so that the vectors of one elastic update share a core's L2 cache.

Measured by ``benchmarks/exchange.py --chunks`` at 0.4, 7 and 61 million parameters: 64 K is a quarter slower at
61 million, 256 K the same, the whole vector about half as fast.
"""


def chunk_ranges(n_params: int, chunk: int = CHUNK_FLOATS) -> tuple[ChunkRange, ...]:
    """Cut ``[0, n_params)`` into ranges ``(start, stop)`` of ``chunk`` floats, the last one shorter.

    Example:
        >>> chunk_ranges(10, 4)
        ((0, 4), (4, 8), (8, 10))
    """
    if chunk < 1:
        msg = f"chunk={chunk}: must be at least 1 float"
        raise ConfigError(msg)
    return tuple((start, min(n_params, start + chunk)) for start in range(0, n_params, chunk))


@dataclass(frozen=True)
class StatisticLayer:
    """One BatchNorm layer's running sums: ``mean`` and ``var`` are (start, stop), ``factor`` one position."""

    mean: ChunkRange
    var: ChunkRange
    factor: int


@dataclass(frozen=True)
class StatisticBlobs:
    """The ``statistic`` entries of a vector, and how workers and center average them.

    Caffe stores, per BatchNorm layer, three blobs: a decayed sum of batch means, one of batch variances, and the sum
    of the decay weights, here called the factor; mean and variance are the sums divided by the factor
    (BVLC Caffe, batch_norm_layer.cpp, BatchNormLayer::Forward_cpu). Sums of workers with different factors cannot be
    averaged; the view ``(mean, E[x^2])`` can, E[x^2] because the variance of a mixture is not the mean of variances.

    Packed form: all layers' ``mean, var, factor`` one after another, float32, shape (n_values,).
    """

    layers: tuple[StatisticLayer, ...] = ()

    @classmethod
    def from_layout(cls, layout: ParamLayout) -> StatisticBlobs:
        """Find the triples of ``statistic`` blobs of a net; layers that share them are counted once.

        Raises:
            ConfigError: A layer has ``statistic`` blobs in another number than three.
        """
        owners: dict[str, dict[int, int]] = {}
        for (layer, index), position in layout.uses.items():
            if layout.entries[position].kind == "statistic":
                owners.setdefault(layer, {})[index] = position
        triples: dict[StatisticLayer, None] = {}
        for layer, found in owners.items():
            if sorted(found) != [0, 1, 2]:
                msg = f'layer "{layer}": statistic blobs {sorted(found)}; expected 0, 1, 2 (mean, variance, factor)'
                raise ConfigError(msg)
            mean, var, factor = (layout.entries[found[i]] for i in range(3))
            triples[StatisticLayer((mean.offset, mean.stop), (var.offset, var.stop), factor.offset)] = None
        return cls(tuple(sorted(triples, key=lambda t: t.mean)))

    @cached_property
    def positions(self) -> npt.NDArray[np.int64]:
        """Position in the vector of each packed value, shape (n_values,)."""
        parts = [np.arange(*span) for s in self.layers for span in (s.mean, s.var, (s.factor, s.factor + 1))]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    @property
    def n_values(self) -> int:
        """Length of the packed form in floats."""
        return len(self.positions)

    def within(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Positions of statistics inside ``[start, stop)``, relative to ``start``, ascending."""
        ordered = np.sort(self.positions)
        low, high = np.searchsorted(ordered, (start, stop))
        return ordered[low:high] - start

    def average(self, center: Vector, local: Vector, n_workers: int) -> tuple[Vector, Vector]:
        """Average a worker's statistics with the center's; both packed, neither is written.

        For each layer, with ``m`` the mean and ``q = E[x^2]``::

            center' = center + (local - center) / n_workers      in (m, q), in float64
            local'  = center', multiplied by the worker's own factor

        A worker whose factor is 0 has seen no batch: nothing moves. A center whose factor is 0 takes a copy.
        The center's factor becomes the worker's: it only says how the sums are scaled.

        Returns:
            ``(new_center, new_local)``, packed, fresh.
        """
        new_center, new_local = center.copy(), local.copy()
        at = 0
        for layer in self.layers:
            width = layer.mean[1] - layer.mean[0]
            span = slice(at, at + 2 * width + 1)
            at = span.stop
            if local[span.stop - 1] == 0:
                continue
            if center[span.stop - 1] == 0:
                new_center[span] = local[span]
                continue
            factor = float(local[span.stop - 1])
            mean, square = _moments(center[span])
            local_mean, local_square = _moments(local[span])
            mean += (local_mean - mean) / n_workers
            square += (local_square - square) / n_workers
            var = np.maximum(square - mean * mean, 0.0)
            new_center[span] = np.concatenate((mean * factor, var * factor, (factor,)))
            new_local[span] = new_center[span]
        return new_center, new_local

    def to_json(self) -> list[list[int]]:
        """Return plain numbers for the server's settings."""
        return [[*layer.mean, *layer.var, layer.factor] for layer in self.layers]

    @classmethod
    def from_json(cls, rows: Iterable[list[int]]) -> StatisticBlobs:
        """Inverse of ``to_json``."""
        return cls(tuple(StatisticLayer((a, b), (c, d), factor) for a, b, c, d, factor in rows))


def _moments(packed: Vector) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return (mean, E[x^2]) of one layer's packed sums ``(mean..., var..., factor)``, float64."""
    width = len(packed) // 2
    values = packed.astype(np.float64) / float(packed[-1])
    mean, var = values[:width], values[width : 2 * width]
    return mean, var + mean * mean
