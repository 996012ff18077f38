"""A net's layers in the order of execution, cut where recomputed segments begin and end."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from caffe_import.files.hdf5_output import hdf5_output_inputs
from caffe_import.net.net_spec import LayerSpec, NetSpec


@dataclass(frozen=True)
class LayerRun:
    """Consecutive layers of the same kind of computation.

    Attributes:
        layers: (position in the net, layer), in order.
        is_recomputed: Are only its results kept, and the rest computed again for the gradient?
        reads: Blobs that it reads and does not make itself.
        gives: Blobs of its own that later layers or the net's user read; of a blob with in-place layers, the content
            that its last layer leaves.
    """

    layers: tuple[tuple[int, LayerSpec], ...]
    is_recomputed: bool
    reads: tuple[str, ...]
    gives: tuple[str, ...]

    @property
    def names(self) -> frozenset[str]:
        """The names of the run's layers."""
        return frozenset(layer.name for _, layer in self.layers)


def layer_runs(net: NetSpec, segments: Sequence[Sequence[str]]) -> tuple[LayerRun, ...]:
    """Return the runs of a net: each of ``segments``, and the layers between.

    Raises:
        ValueError: A segment is not a run of consecutive layers of the net, or two overlap.
    """
    names = [layer.name for layer in net.layers]
    positions = {name: at for at, name in enumerate(names)}
    stops = {}
    for segment in segments:
        start = positions.get(segment[0], -1) if segment else -1
        if start < 0 or list(segment) != names[start : start + len(segment)]:
            msg = f"segment {', '.join(segment)}: these are not consecutive layers of the net"
            raise ValueError(msg)
        stops[start] = start + len(segment)
    starts = sorted(stops)
    crossings = _Crossings(net)
    runs = []
    at = 0
    while at < len(names):
        index = bisect_right(starts, at)
        next_start = starts[index] if index < len(starts) else len(names)
        stop = stops.get(at, next_start)
        if stop > next_start:
            msg = f'two segments hold layer "{names[stop - 1]}"'
            raise ValueError(msg)
        runs.append(crossings.run(at, stop, is_recomputed=at in stops))
        at = stop
    return tuple(runs)


class _Crossings:
    """The first maker and the last reader of each blob of a net."""

    def __init__(self, net: NetSpec) -> None:
        self._net = net
        self._first_made: dict[str, int] = {}
        self._last_read: dict[str, int] = {}
        for at, layer in enumerate(net.layers):
            self._last_read.update(dict.fromkeys(layer.bottoms, at))
            for blob in layer.tops:
                self._first_made.setdefault(blob, at)
        self._last_read.update(dict.fromkeys((*net.outputs, *hdf5_output_inputs(net)), len(net.layers)))

    def run(self, start: int, stop: int, *, is_recomputed: bool) -> LayerRun:
        """Return the run of the layers ``start`` to ``stop`` - 1."""
        made_blobs: dict[str, None] = {}
        reads: dict[str, None] = {}
        for layer in self._net.layers[start:stop]:
            from_before = (blob for blob in layer.bottoms if blob not in made_blobs)
            reads.update((blob, None) for blob in from_before if self._first_made.get(blob, start) < start)
            made_blobs.update((blob, None) for blob in layer.tops)
        gives = tuple(blob for blob in made_blobs if self._last_read.get(blob, -1) >= stop)
        layers = tuple(enumerate(self._net.layers[start:stop], start))
        return LayerRun(layers, is_recomputed, tuple(reads), gives)
