"""How many bytes a device that computes some of a net's layers keeps at most during a training step.

Throughout it keeps its weights and history and, as long as TensorFlow has no gradient for them, the products of both
that an update needs: it computes at once what it can. On top of that come, while a layer's gradient is computed: what
that layer and those before it keep for their gradients, the gradients of blobs that are under way, and the gradients of
the weights behind; and of every other pass in flight all that is kept. The batches of all passes are there at once.
What a segment that is computed again makes for itself alone is there while its gradients are computed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from caffe_import.devices.layer_tensors import LayerTensors, gradient_scratch_bytes, hands_gradient_on
from caffe_import.net.layer_registry import find_layer_type
from caffe_import.net.net_spec import LayerSpec
from caffe_import.solver.solver_spec import SolverSpec
from caffe_import.solver.update_rules import RULES


@dataclass(frozen=True)
class StepShape:
    """How a step repeats what a pass does.

    Attributes:
        n_passes: Passes of a step: the solver's iter_size.
        n_slots: History blobs of each parameter blob.
        n_products: Products of weights and history that an update needs beside the gradient, each of the weights' size.
        n_in_flight: Passes whose activations are kept at the same time, at most.
    """

    n_passes: int = 1
    n_slots: int = 1
    n_products: int = 2
    n_in_flight: int = 1


def step_shape(solver: SolverSpec, n_devices: int) -> StepShape:
    """Return what a step of a solver repeats, its passes one after the other through ``n_devices``."""
    n_slots = RULES[solver.type].n_slots
    of_history = (
        0 if solver.type == "AdaGrad" or (solver.type in ("SGD", "Nesterov") and not solver.momentum) else n_slots
    )
    return StepShape(
        solver.iter_size, n_slots, of_history + (solver.weight_decay != 0), min(solver.iter_size, n_devices)
    )


def tensor_content(tensor: str) -> str:
    """Return what tensors that hold the same values in two axis orders have in common."""
    return tensor.removesuffix(" (caffe)").removesuffix(" (channels last)")


def gradient_readers(layers: tuple[LayerTensors, ...]) -> Mapping[str, int]:
    """Return content -> number of layers that send it a gradient."""
    found: dict[str, int] = {}
    for layer in layers:
        for name in _sends_gradient_to(layer):
            found[name] = found.get(name, 0) + 1
    return found


def recomputed_tensors(
    layers: Sequence[LayerTensors], segments: Sequence[Sequence[str]]
) -> tuple[frozenset[str] | None, ...]:
    """Return for each layer the tensors that its segment makes for itself alone; None outside of all segments."""
    last_read = {name: at for at, layer in enumerate(layers) for name in layer.reads}
    found: list[frozenset[str] | None] = [None] * len(layers)
    names = [layer.layer.name for layer in layers]
    for segment in segments:
        start = names.index(segment[0])
        stop = start + len(segment)
        made = {tensor.name for layer in layers[start:stop] for tensor in layer.makes}
        found[start:stop] = [frozenset(name for name in made if last_read.get(name, 0) < stop)] * len(segment)
    return tuple(found)


class MemoryCount:
    """Adds up the layers of one device, in net order.

    In the backward pass nothing before a layer depends on what comes after it but the gradients of weights, so that the
    peak of a run of layers follows from the peak of the run without its last layer.
    """

    def __init__(
        self, step: StepShape, sizes: Mapping[str, int], readers: Mapping[str, int], fed: Collection[str]
    ) -> None:
        """Begin with no layer.

        Args:
            step: What a step repeats.
            sizes: Bytes of all tensors of the net.
            readers: ``gradient_readers`` of the whole net.
            fed: Tensors that are no layer's work but fed.
        """
        self._step = step
        self._sizes = sizes
        self._readers = readers
        self._unread = set(fed)
        self._fed = frozenset(fed)
        self._fed_bytes = 0
        self._kept: set[str] = set()
        self._kept_bytes = 0
        self._again: frozenset[str] | None = None
        self._again_bytes = 0
        self._pending: dict[str, int] = {}
        self._pending_bytes = 0
        self._param_bytes = 0.0
        self._peak = 0.0

    def add(self, layer: LayerTensors, param_bytes: float, again: frozenset[str] | None = None) -> None:
        """Add a layer.

        Args:
            layer: What it makes and reads.
            param_bytes: Bytes of its weights that are on this device.
            again: Its entry of ``recomputed_tensors``; one object for all layers of a segment.
        """
        self._keep(layer, again)
        for tensor in layer.makes:
            name = tensor_content(tensor.name)
            if name == tensor.name and name in layer.tops:
                self._pending[name] = self._readers.get(name, 0)
                self._pending_bytes += tensor.n_bytes * self._pending[name]
        given = _sends_gradient_to(layer)
        # A gradient is there twice while it is brought into the other axis order, or added to another reader's; that of
        # a value-by-value layer takes the place of its top's.
        twice = 0 if layer.reuses or hands_gradient_on(layer.layer) else sum(self._sizes[name] for name in given)
        under_way = self._pending_bytes + twice + gradient_scratch_bytes(layer.layer)
        if layer.layer.needs_backward:
            kept = self._kept_bytes + self._again_bytes
            self._peak = max(self._peak, kept + under_way - self._param_bytes)
        for name in given:
            if self._pending.get(name):
                self._pending[name] -= 1
                self._pending_bytes -= self._sizes[name]
        self._param_bytes += param_bytes

    def _keep(self, layer: LayerTensors, again: frozenset[str] | None) -> None:
        """Count what is fed, and what stays for the layer's gradient; a segment's bottoms are needed to repeat it."""
        if again is not self._again:
            self._again, self._again_bytes = again, 0
        for name in self._unread.intersection(map(tensor_content, layer.reads)):
            self._unread.remove(name)
            self._fed_bytes += self._sizes[name]
        needed = {*layer.kept, *(name for name in layer.reads if again is not None and name not in again)}
        for name in needed - self._kept - self._fed:
            self._kept.add(name)
            if again is not None and name in again:
                self._again_bytes += self._sizes[name]
            else:
                self._kept_bytes += self._sizes[name]

    @property
    def param_bytes(self) -> float:
        """Bytes of the weights of the layers so far."""
        return self._param_bytes

    def total(self) -> int:
        """Return the forecast for the layers so far."""
        step = self._step
        throughout = 1 + step.n_slots + step.n_products + (step.n_passes > 1)
        # The gradients of all weights, less those of the layers before the one at the peak.
        of_pass = self._param_bytes + max(self._peak, 0.0)
        others = (step.n_in_flight - 1) * self._kept_bytes
        return round(throughout * self._param_bytes + step.n_passes * self._fed_bytes + of_pass + others)


def _sends_gradient_to(layer: LayerTensors) -> list[str]:
    spec = layer.layer
    return [
        tensor_content(name) for index, name in enumerate(layer.reads) if _flows(spec, index) and name not in layer.tops
    ]


def _flows(layer: LayerSpec, index: int) -> bool:
    if not layer.needs_backward:
        return False
    kind = find_layer_type(layer.type, layer=layer.name)
    return layer.propagate_down[index] and kind.differentiable_bottoms and index not in kind.label_bottoms
