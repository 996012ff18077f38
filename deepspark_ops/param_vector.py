"""The float32 vector of a net's parameters: the ranges of chunks, and the positions of BatchNorm's running sums.

No framework and no Caffe message: the exchange server imports this module and must start in a blink.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

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
    """Cut ``[0, n_params)`` into ranges ``(start, stop)`` of ``chunk`` floats; the last range may be shorter.

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
    """Running sums of a BatchNorm layer: ``mean`` and ``var`` are (start, stop), ``factor`` is a position.

    ``fraction``, in [0, 1], multiplies the sums before a minibatch is added.
    """

    mean: ChunkRange
    var: ChunkRange
    factor: int
    fraction: float


@dataclass(frozen=True)
class StatisticBlobs:
    """The ``statistic`` entries of a vector changed in training, and the center's sums over all workers.

    Caffe stores three blobs per BatchNorm layer: a decayed sum of batch means, a decayed sum of batch variances, and
    the sum of the decay weights, here called the factor. Mean and variance are the sums divided by the factor. Each
    minibatch multiplies all three blobs by ``fraction`` and adds the minibatch's values, to the factor 1 (BVLC Caffe,
    batch_norm_layer.cpp, BatchNormLayer::Forward_cpu).

    With several workers the center's sums equal the sums of a single worker over all minibatches, in the order of the
    exchanges. So the statistics decay per clock as with a single worker. A worker hands over the sums since the last
    hand-over and starts again at 0; training never reads the sums.

    Packed form: ``mean, var, factor`` of each layer in turn, float32, shape (n_values,).
    """

    layers: tuple[StatisticLayer, ...] = ()

    @classmethod
    def from_layout(cls, layout: ParamLayout, fractions: Mapping[str, float]) -> StatisticBlobs:
        """Find the triples of ``statistic`` blobs of a net; a shared triple counts once.

        Args:
            layout: The net's.
            fractions: Layer -> its ``fraction``, of the layers whose statistics move; other statistics are constants.

        Raises:
            ConfigError: A layer has ``statistic`` blobs in another number than three.
        """
        owners: dict[str, dict[int, int]] = {}
        for (layer, index), position in layout.uses.items():
            if layout.entries[position].kind == "statistic" and layer in fractions:
                owners.setdefault(layer, {})[index] = position
        triples: dict[ChunkRange, StatisticLayer] = {}
        for layer, blobs in owners.items():
            if sorted(blobs) != [0, 1, 2]:
                msg = f'layer "{layer}": statistic blobs {sorted(blobs)}; expected 0, 1, 2 (mean, variance, factor)'
                raise ConfigError(msg)
            mean, var, factor = (layout.entries[blobs[i]] for i in range(3))
            span = (mean.offset, mean.stop)
            triple = StatisticLayer(span, (var.offset, var.stop), factor.offset, fractions[layer])
            triples.setdefault(span, triple)
        return cls(tuple(triples[span] for span in sorted(triples)))

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

    def gathered(self, center: Vector, sums: Vector) -> Vector:
        """Return the center's sums plus a worker's sums, ``fraction^k * center + sums``; packed, fresh.

        k is the number of minibatches in the worker's sums, known from the factor: 1 + fraction + ... + fraction^(k-1).

        Args:
            center: The center's, packed; not written.
            sums: The worker's since it last handed them over, packed; not written.
        """
        total = center.astype(np.float64)
        for span, layer in self._spans():
            total[span] *= _decay(float(sums[span.stop - 1]), layer.fraction)
        return (total + sums).astype(np.float32)

    def since(self, sums: Vector, handed_over: Vector) -> Vector:
        """Return the sums of the minibatches after ``handed_over``; packed, fresh.

        Args:
            sums: A worker's of both, packed; not written.
            handed_over: Of the first ones, packed; not written.
        """
        remainder = sums.astype(np.float64)
        for span, layer in self._spans():
            decay_total, decay_handed_over = (
                _decay(float(packed[span.stop - 1]), layer.fraction) for packed in (sums, handed_over)
            )
            if layer.fraction == 1.0:
                remainder[span] -= handed_over[span]
            elif decay_handed_over > 0.0:
                remainder[span] -= decay_total / decay_handed_over * handed_over[span]
        return remainder.astype(np.float32)

    def to_json(self) -> list[list[float]]:
        """Return plain numbers for the server's settings."""
        return [[*layer.mean, *layer.var, layer.factor, layer.fraction] for layer in self.layers]

    @classmethod
    def from_json(cls, rows: Iterable[list[Any]]) -> StatisticBlobs:
        """Inverse of ``to_json``."""
        return cls(
            tuple(StatisticLayer((a, b), (c, d), factor, float(fraction)) for a, b, c, d, factor, fraction in rows)
        )

    def _spans(self) -> Iterator[tuple[slice, StatisticLayer]]:
        """Yield each layer with the layer's slice of the packed form."""
        start = 0
        for layer in self.layers:
            stop = start + 2 * (layer.mean[1] - layer.mean[0]) + 1
            yield slice(start, stop), layer
            start = stop


def _decay(factor: float, fraction: float) -> float:
    """Return ``fraction^k`` where ``factor`` is ``1 + fraction + ... + fraction^(k-1)``."""
    return max(0.0, 1.0 - (1.0 - fraction) * factor)
