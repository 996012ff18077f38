"""Cuts a net into segments for the backward pass to compute again; a step then needs about the least memory.

A step permanently stores the tensors that segments pass to later layers. In addition, a single segment at a time stores
all tensors of the segment's gradient. Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016), section 4.2,
vary the budget of a segment over a chain. A net is a graph, so each budget gets its best cuts by the recursion

    best[b] = min over a of best[a] + given(a, b),   own(a, b) <= budget

over the allowed cuts a < b. given(a, b) are the bytes of [a, b) for layers from b on, own(a, b) the bytes for the
gradient of [a, b). The chosen budget minimises best[end] + budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from caffe_import.devices.compute_plan import Placement
from caffe_import.devices.fused_layers import fused_scales
from caffe_import.devices.layer_tensors import layer_tensors
from caffe_import.net.blob_memory import memory_of_blobs
from caffe_import.net.net_spec import LayerSpec, NetSpec

_BUDGETS = 48
"""Segment sizes that are tried, between that of the largest layer and that of the net."""


@dataclass(frozen=True)
class Segment:
    """Layers ``start`` to ``stop`` - 1 of the net.

    Attributes:
        start: First layer's position.
        stop: One past the last layer's.
        own_bytes: What its gradient reads of what it makes.
        given_bytes: What later layers read of it.
        is_recomputed: Is what only its own gradient reads computed again, not kept?
    """

    start: int
    stop: int
    own_bytes: int
    given_bytes: int
    is_recomputed: bool

    @property
    def kept_bytes(self) -> int:
        """Bytes kept between the segment's forward and backward pass."""
        return self.given_bytes if self.is_recomputed else self.own_bytes


def choose_segments(net: NetSpec, placement: Placement | None = None) -> tuple[tuple[str, ...], ...]:
    """Return the segments for ``ComputePlan.recompute``, in the order of execution; empty if no segment saves memory.

    The layers after the last segment are not computed again, because their gradients come first. Each segment is on one
    device of ``placement``.
    """
    return tuple(
        tuple(layer.name for layer in net.layers[segment.start : segment.stop])
        for segment in best_cuts(net, placement)
        if segment.is_recomputed
    )


def best_cuts(net: NetSpec, placement: Placement | None = None) -> tuple[Segment, ...]:
    """Return the whole net as segments, including segments that are not computed again."""
    cuts = _Cuts(net, placement)
    sizes = [segment.own_bytes for segment in cuts.smallest()]
    largest, total_bytes = max(sizes, default=0), sum(sizes)
    best: tuple[float, tuple[Segment, ...]] = (inf, ())
    budget = 0
    for step in range(_BUDGETS):
        if budget >= best[0]:
            break  # further cuts have a segment above the budget, and so a higher peak
        budget = int(largest + (total_bytes - largest) * (step / (_BUDGETS - 1)) ** 2)
        segments = cuts.best_within(budget)
        total = peak_bytes(segments)
        if total < best[0]:
            best = (total, segments)
    return _without_needless(best[1])


def peak_bytes(segments: Sequence[Segment]) -> int:
    """Return the peak of activations in the backward pass, without gradients.

    During a segment's gradient, all tensors of the segment exist, and the stored tensors of earlier segments.
    """
    kept_bytes = peak = 0
    for segment in segments:
        peak = max(peak, kept_bytes + segment.own_bytes)
        kept_bytes += segment.kept_bytes
    return peak


def _without_needless(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """Keep, from the net's end on, what can be kept without a higher peak: the last segment's gradient comes first."""
    peak = peak_bytes(segments)
    for at in reversed(range(len(segments))):
        plain = (*segments[:at], replace(segments[at], is_recomputed=False), *segments[at + 1 :])
        if peak_bytes(plain) <= peak:
            segments = plain
    return segments


@dataclass(frozen=True)
class _Use:
    """Positions of the first and last layers that use a tensor of a pass.

    Attributes:
        n_bytes: Its size.
        first_stored: The first layer whose gradient reads the tensor.
        first_top: The first layer that has the tensor as a top.
        last_read: The last layer whose forward pass reads the tensor.
    """

    n_bytes: int
    first_stored: float
    first_top: float
    last_read: int


class _Cuts:
    """The allowed cuts of a net, and the bytes of segments between cuts."""

    def __init__(self, net: NetSpec, placement: Placement | None) -> None:
        layers = layer_tensors(net)
        first_stored: dict[str, int] = {}
        first_top: dict[str, int] = {}
        last_read: dict[str, int] = {}
        for at, layer in enumerate(layers):
            last_read.update(dict.fromkeys(layer.reads, at))
            for names, first in ((layer.stored, first_stored), (layer.tops, first_top)):
                first.update((name, at) for name in names if name not in first)
        self._uses = [
            [
                _Use(
                    tensor.n_bytes,
                    first_stored.get(tensor.name, inf),
                    first_top.get(tensor.name, inf),
                    last_read.get(tensor.name, -1),
                )
                for tensor in layer.makes
            ]
            for layer in layers
        ]
        self._positions = allowed_cuts(net)
        self._devices = [_device(layer, placement) for layer in net.layers]

    def smallest(self) -> list[Segment]:
        """Return the segments between neighbouring cuts."""
        return [next(self._ending_at(number)) for number in range(1, len(self._positions))]

    def _ending_at(self, number: int) -> Iterator[Segment]:
        """Yield the segments that end at a cut, from the smallest on; each adds its first layers to the one before."""
        stop, is_last = self._positions[number], number == len(self._positions) - 1
        own_bytes = top_bytes = 0
        devices: set[int | None] = set()
        for begin in reversed(range(number)):
            start = self._positions[begin]
            for at in range(start, self._positions[begin + 1]):
                devices.add(self._devices[at])
                for use in self._uses[at]:
                    own_bytes += use.n_bytes * (use.first_stored < stop)
                    top_bytes += use.n_bytes * (use.first_top < stop <= use.last_read)
            worth = not is_last and top_bytes < own_bytes and len(devices) == 1 and None not in devices
            yield Segment(start, stop, own_bytes, top_bytes, is_recomputed=worth)

    def best_within(self, budget: int) -> tuple[Segment, ...]:
        """Return the cuts with the least stored bytes, if no recomputed segment has more than ``budget`` bytes."""
        n_cuts = len(self._positions)
        costs = [0.0] + [inf] * (n_cuts - 1)
        last_segments: list[tuple[int, Segment] | None] = [None] * n_cuts
        for end in range(1, n_cuts):
            for begin, segment in zip(range(end - 1, -1, -1), self._ending_at(end), strict=True):
                if segment.own_bytes > budget and begin < end - 1:
                    break
                cost = costs[begin] + segment.kept_bytes
                if cost < costs[end]:
                    costs[end], last_segments[end] = cost, (begin, segment)
        segments: list[Segment] = []
        last = last_segments[-1]
        while last is not None:
            begin, segment = last
            segments.append(segment)
            last = last_segments[begin]
        return tuple(reversed(segments))


def _device(layer: LayerSpec, placement: Placement | None) -> int | None:
    """Return the device that computes the layer; None for a fed or split layer."""
    if layer.definition.is_data:
        return None
    return 0 if placement is None else placement.device_of.get(layer.name)


def allowed_cuts(net: NetSpec) -> list[int]:
    """Return the positions before which a segment may begin, including the net's start and end.

    No cut lies between the maker of a blob and the last in-place layer on the blob (through Split and Reshape): the
    gradients of such layers read values of the other layers. Nor between a BatchNorm and the Scale of the same kernel.
    Data layers are fed and stand alone.
    """
    memory = memory_of_blobs(net)
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for at, layer in enumerate(net.layers):
        for blob in layer.tops:
            first.setdefault(memory[blob], at)
            if blob in layer.bottoms:
                last[memory[blob]] = at
    positions = {layer.name: at for at, layer in enumerate(net.layers)}
    ranges = [(first[blob], end) for blob, end in last.items()]
    ranges += [(positions[name], positions[scale.name]) for name, scale in fused_scales(net).items()]
    closed = {at for start, end in ranges for at in range(start + 1, end + 1)}
    return [at for at in range(len(net.layers) + 1) if at not in closed]
