"""A net's layers in the order of execution, cut where recomputed segments begin and end."""

from __future__ import annotations

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
    starts = {}
    names = [layer.name for layer in net.layers]
    for segment in segments:
        start = names.index(segment[0]) if segment and segment[0] in names else -1
        if start < 0 or list(segment) != names[start : start + len(segment)]:
            msg = f"segment {', '.join(segment)}: these are not consecutive layers of the net"
            raise ValueError(msg)
        starts[start] = start + len(segment)
    runs = []
    at = 0
    while at < len(names):
        stop = starts.get(at, min((start for start in starts if start > at), default=len(names)))
        if any(at < start < stop for start in starts):
            msg = f'two segments hold layer "{names[stop - 1]}"'
            raise ValueError(msg)
        runs.append(_run(net, at, stop, is_recomputed=at in starts))
        at = stop
    return tuple(runs)


def _run(net: NetSpec, start: int, stop: int, *, is_recomputed: bool) -> LayerRun:
    inside = net.layers[start:stop]
    made_before = {top for layer in net.layers[:start] for top in layer.tops}
    made_blobs: dict[str, None] = {}
    reads: dict[str, None] = {}
    for layer in inside:
        reads.update((blob, None) for blob in layer.bottoms if blob not in made_blobs and blob in made_before)
        made_blobs.update((blob, None) for blob in layer.tops)
    later_reads = {blob for layer in net.layers[stop:] for blob in layer.bottoms}
    later_reads |= {*net.outputs, *hdf5_output_inputs(net)}
    layers = tuple(enumerate(inside, start))
    return LayerRun(layers, is_recomputed, tuple(reads), tuple(blob for blob in made_blobs if blob in later_reads))
