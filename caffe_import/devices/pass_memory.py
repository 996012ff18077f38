"""The most bytes of a pass at a time: layers forwards, then backwards, each tensor from its making to its last use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from caffe_import.devices.layer_tensors import LayerTensors, gradient_scratch_bytes, hands_gradient_on
from caffe_import.net.layer_registry import find_layer_type
from caffe_import.net.net_spec import LayerSpec


class _Lives:
    """From when to when each tensor is there; times ascend."""

    def __init__(self) -> None:
        self._lives: dict[str, tuple[int, int, int]] = {}
        self.end = 0

    def use(self, name: str, n_bytes: int, time: int) -> None:
        born, _, _ = self._lives.get(name, (time, 0, 0))
        self._lives[name] = (born, time, n_bytes)
        self.end = max(self.end, time)

    def peak(self) -> int:
        changes = [0] * (self.end + 2)
        for born, last, n_bytes in self._lives.values():
            changes[born] += n_bytes
            changes[last + 1] -= n_bytes
        return max(accumulate(changes))


class _Pass:
    """Runs through one pass; ``segments`` are (start, stop) of the layers that are computed again."""

    def __init__(self, layers: Sequence[LayerTensors], segments: Iterable[tuple[int, int]]) -> None:
        self._layers = layers
        self._segment_of = {at: (start, stop) for start, stop in segments for at in range(start, stop)}
        self._sizes = {tensor.name: tensor.n_bytes for layer in layers for tensor in layer.makes}
        self._made_at = {tensor.name: at for at, layer in enumerate(layers) for tensor in layer.makes}
        self._lives = _Lives()
        self._time = 0
        self._gradients: dict[str, list[str]] = {}

    def peak(self) -> int:
        for at in range(len(self._layers)):
            self._forward(at, again=False)
        for at in reversed(range(len(self._layers))):
            start, stop = self._segment_of.get(at, (0, 0))
            if at == stop - 1:
                for inside in range(start, stop):
                    self._forward(inside, again=True)
            if self._layers[at].layer.needs_backward:
                self._backward(at)
        return self._lives.peak()

    def _copy(self, name: str, at: int, *, again: bool) -> str:
        """Return the tensor that layer ``at`` reads in the first or the second computation."""
        start, stop = self._segment_of.get(at, (0, 0))
        return f"{name} again" if again and start <= self._made_at[name] < stop else name

    def _forward(self, at: int, *, again: bool) -> None:
        layer = self._layers[at]
        for name in layer.reads:
            self._lives.use(self._copy(name, at, again=again), self._sizes[name], self._time)
        for tensor in layer.makes:
            name = self._copy(tensor.name, at, again=again)
            if not layer.reuses:
                self._lives.use(name, tensor.n_bytes, self._time)
            self._lives.use(name, tensor.n_bytes, self._time + 1)
        self._time += 2

    def _backward(self, at: int) -> None:
        layer = self._layers[at]
        again = at in self._segment_of
        for name in layer.kept:
            self._lives.use(self._copy(name, at, again=again), self._sizes[name], self._time)
        of_tops = [found for name in layer.tops for found in self._gradients.get(name, [])]
        sizes = {name: self._sizes[name] for name in layer.tops}
        for name in layer.tops:
            for found in self._gradients.get(name, []):
                self._lives.use(found, sizes[name], self._time)
        self._lives.use(f"scratch of {at}", gradient_scratch_bytes(layer.layer), self._time)
        for index, name in enumerate(layer.reads):
            if not _flows(layer.layer, index) or name in layer.tops:
                continue
            if hands_gradient_on(layer.layer):
                given = of_tops
            elif layer.reuses and of_tops:
                given = of_tops[:1]
            else:
                given = [f"gradient of {name} by {at}.{index}"]
                self._lives.use(given[0], self._sizes[name], self._time)
            self._gradients.setdefault(self._base(name), []).extend(given)
        self._time += 2

    def _base(self, name: str) -> str:
        return name.removesuffix(" (caffe)").removesuffix(" (channels last)")


def _flows(layer: LayerSpec, index: int) -> bool:
    kind = find_layer_type(layer.type, layer=layer.name)
    return layer.propagate_down[index] and kind.differentiable_bottoms and index not in kind.label_bottoms


def pass_peak_bytes(layers: Sequence[LayerTensors], segments: Iterable[tuple[int, int]] = ()) -> int:
    """Return the most bytes that the blobs of one training pass and their gradients take at a time.

    Args:
        layers: As ``layer_tensors`` returns them.
        segments: First position and one past the last of each run of layers that is computed again.
    """
    return _Pass(layers, segments).peak()
