"""Peak bytes of a training step on a device for a whole net, or for some layers.

Weights and history stay throughout. A single device writes the new ones in place, blob after blob, with products for
one blob at a time. Several devices keep the old ones until the step ends. A layer's gradient adds the tensors for the
gradients of this and earlier layers, the blobs' present gradients, and the gradients of later weights. Every other pass
in flight adds all stored tensors. The batches of all passes exist at once. The inner tensors of a recomputed segment
exist during the segment's gradients.

On a CPU where TensorFlow starts without oneDNN (``onednn.py``), a convolution's gradient makes columns of the images,
as Caffe's does. The forecast asks the CPU of this process. For a GPU the forecast counts the same columns, not cuDNN's
workspace.

Fitted to the peaks of TensorFlow 2.21's CPU allocator (SGD, oneDNN, one thread, MiB; the largest of five steps of
``tests/integration/devices/step_peaks.py``, each net in a separate process on a busy machine)::

    net            batch  parameters  measured  forecast | recompute: measured  forecast
    LeNet             64         1.6        14        14 |
    cifar10_quick    100         0.6        52        43 |
    CaffeNet           8         233     1,112     1,139 |
    GoogLeNet          8          51       503       445 |
    SqueezeNet         8         4.7       199       204 |                 110       104
    ResNet-50          8          98     1,001       974 |

Steps differ by up to a tenth: TensorFlow's order of kernels is not fixed, and the allocator hands out larger pieces
than requested, most of all for large blobs. cifar10_quick took 43 on an idle machine. Of two devices with a part of a
net each ``docs/guides/devices.md`` has the figures. A GPU's memory was not measured.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from caffe_import.devices.layer_memory import layer_rows, needs_of_layers
from caffe_import.devices.layer_tensors import LayerTensors, gradient_scratch_bytes, layer_tensors
from caffe_import.devices.onednn import starts_with_onednn
from caffe_import.net.layer_registry import find_layer_type
from caffe_import.net.net_spec import LayerSpec, NetSpec
from caffe_import.solver.solver_spec import SolverSpec
from caffe_import.solver.update_rules import RULES

_BLOBS_IN_UPDATE: Final = 3
"""Of the largest layer's size: products of the blob that is updated, and the new blob."""
_VECTORS_OF_SUMS: Final = 3
"""With iter_size: the sum of the gradients before and after a pass, and what the loop over one vector hands over."""
_SCRATCH: Final = 1.18
"""What kernels on one vector's device take for themselves, and gradients of weights that TensorFlow leaves for later;
the records of placed steps show none of it."""


@dataclass(frozen=True)
class StepShape:
    """How a step repeats what a pass does.

    Attributes:
        n_passes: Passes of a step: the solver's iter_size.
        n_slots: History blobs of each parameter blob.
        n_in_flight: Passes whose activations are kept at the same time, at most.
        has_vector: Are the parameters one vector between steps, as where one device computes the net?
        makes_columns: Do gradients of convolutions make columns, as on a CPU without oneDNN?
    """

    n_passes: int = 1
    n_slots: int = 1
    n_in_flight: int = 1
    has_vector: bool = False
    makes_columns: bool = False


def step_shape(solver: SolverSpec, n_devices: int = 1) -> StepShape:
    """Return the repetitions in a solver's step on this CPU: passes one after the other through ``n_devices``."""
    return StepShape(
        n_passes=solver.iter_size,
        n_slots=RULES[solver.type].n_slots,
        n_in_flight=min(solver.iter_size, n_devices),
        has_vector=n_devices == 1,
        makes_columns=not starts_with_onednn(os.environ),
    )


@dataclass(frozen=True)
class StepMemory:
    """Peak memory of a training step on one device.

    Attributes:
        activation_bytes: Blobs of the passes in flight and their gradients, scratch included.
        column_bytes: Columns of a convolution, which do not depend on the batch.
        fed_bytes: What it is fed.
        param_bytes: Parameters, history and those gradients of weights that are there at the same time.
        update_bytes: The same while the update is made, when no blob is there any more.
    """

    activation_bytes: int
    column_bytes: int
    fed_bytes: int
    param_bytes: int
    update_bytes: int

    @property
    def total_bytes(self) -> int:
        """The peak: in the pass or in the update."""
        of_pass = self.activation_bytes + self.column_bytes + self.param_bytes
        return max(of_pass, self.update_bytes) + self.fed_bytes

    def with_batch(self, factor: float) -> StepMemory:
        """Return the memory with ``factor`` times the batch_size."""
        return replace(
            self, activation_bytes=int(self.activation_bytes * factor), fed_bytes=int(self.fed_bytes * factor)
        )


class NetCosts:
    """The costs of each layer of a net, found once. Immutable."""

    def __init__(self, net: NetSpec, step: StepShape, segments: Sequence[Sequence[str]] = ()) -> None:
        """Follow the net's tensors; ``segments`` as ``ComputePlan.recompute``."""
        self.net = net
        self.step = step
        self.tensors: tuple[LayerTensors, ...] = layer_tensors(net)
        self.bytes_of: Mapping[str, int] = {
            t.name: t.n_bytes for tensors_of_layer in self.tensors for t in tensors_of_layer.makes
        }
        self.needs = needs_of_layers(self.tensors, segments)
        self.sources = frozenset(
            t.name
            for tensors_of_layer in self.tensors
            if not tensors_of_layer.layer.bottoms
            for t in tensors_of_layer.makes
        )
        blobs_by_name: dict[str, set[int]] = {}
        for (name, _), position in net.params.uses.items():
            blobs_by_name.setdefault(name, set()).add(position)
        self.blobs = [blobs_by_name.get(layer.name, set()) for layer in net.layers]
        self.gradient_readers: dict[str, int] = {}
        """Content -> number of layers that send it a gradient."""
        for tensors_of_layer in self.tensors:
            for name in _sends_gradient_to(tensors_of_layer):
                self.gradient_readers[name] = self.gradient_readers.get(name, 0) + 1


class MemoryCount:
    """Adds up the layers of one device, in net order.

    In the backward pass only the gradients of weights depend on later layers. So the peak of a run of layers follows
    from the peak of the run without its last layer.
    """

    def __init__(self, costs: NetCosts) -> None:
        """Begin with no layer."""
        self._costs = costs
        self._unread = set(costs.sources)
        self._fed_bytes = 0
        self._stored: set[str] = set()
        self._stored_bytes = 0
        self._segment: int | None = None
        self._recomputed: set[str] = set()
        self._recomputed_bytes = 0
        self._pending: dict[str, int] = {}
        self._pending_bytes = 0
        self._param_bytes = 0.0
        self._largest_bytes = 0.0
        self._peak = 0.0
        # There: the bytes of the pass, the columns, and the weights whose gradients are not there yet.
        self._at_peak = (0, 0, 0.0)

    def add(self, position: int, param_bytes: float) -> None:
        """Add the layer at a position of the net, with the bytes of the layer's weights on this device."""
        layer = self._costs.tensors[position]
        self._store(position)
        for tensor in layer.makes:
            name = tensor_content(tensor.name)
            if name == tensor.name and name in layer.tops:
                self._pending[name] = self._costs.gradient_readers.get(name, 0)
                self._pending_bytes += tensor.n_bytes * self._pending[name]
        gradient_targets = _sends_gradient_to(layer)
        under_way = self._pending_bytes + gradient_scratch_bytes(layer.layer)
        if (
            layer.reuses and gradient_targets and any(self._pending.get(name) for name in layer.tops)
        ):  # written over the top's
            under_way -= self._costs.bytes_of[gradient_targets[0]]
        if layer.layer.needs_backward:
            of_pass = self._stored_bytes + self._recomputed_bytes + under_way
            columns = layer.layer.traits.column_bytes if self._costs.step.makes_columns else 0
            if of_pass + columns - self._param_bytes > self._peak:
                self._peak = of_pass + columns - self._param_bytes
                self._at_peak = (of_pass, columns, self._param_bytes)
        for name in gradient_targets:
            if self._pending.get(name):
                self._pending[name] -= 1
                self._pending_bytes -= self._costs.bytes_of[name]
        self._param_bytes += param_bytes
        self._largest_bytes = max(self._largest_bytes, param_bytes)

    def _store(self, position: int) -> None:
        """Count what is fed, and what stays for the layer's gradient."""
        costs, needs = self._costs, self._costs.needs[position]
        for name in self._unread.intersection(map(tensor_content, costs.tensors[position].reads)):
            self._unread.remove(name)
            self._fed_bytes += costs.bytes_of[name]
        for name in needs.stored - self._stored - costs.sources:
            self._stored.add(name)
            self._stored_bytes += costs.bytes_of[name]
        if needs.segment != self._segment:
            self._segment, self._recomputed_bytes = needs.segment, 0
        for name in needs.recomputed - self._recomputed:
            self._recomputed.add(name)
            self._recomputed_bytes += costs.bytes_of[name]

    @property
    def param_bytes(self) -> float:
        """Bytes of the weights of the layers so far."""
        return self._param_bytes

    def memory(self) -> StepMemory:
        """Return the forecast for the layers so far."""
        step, scratch, sums = self._costs.step, 1.0, int(self._costs.step.n_passes > 1)
        copies = 2 + step.n_slots
        update_bytes = (copies + step.n_slots) * self._param_bytes
        if step.has_vector:
            scratch, sums = _SCRATCH, _VECTORS_OF_SUMS * sums
            update_bytes = copies * self._param_bytes + _BLOBS_IN_UPDATE * self._largest_bytes
        of_pass, columns, no_gradient_yet = self._at_peak
        other_batches_bytes = (step.n_in_flight - 1) * self._stored_bytes
        return StepMemory(
            activation_bytes=round(scratch * of_pass + other_batches_bytes),
            column_bytes=columns,
            fed_bytes=self._fed_bytes * (step.n_passes + step.has_vector),  # and the batch that is cut out of them
            param_bytes=round((copies + sums) * self._param_bytes - no_gradient_yet),
            update_bytes=round(update_bytes),
        )


def step_memory(net: NetSpec, step: StepShape, segments: Sequence[Sequence[str]] = ()) -> StepMemory:
    """Return the memory of a step on a device that computes the whole net.

    Args:
        net: The TRAIN net.
        step: What a step repeats.
        segments: As ``ComputePlan.recompute``.
    """
    count = MemoryCount(NetCosts(net, step, segments))
    for position, row in enumerate(layer_rows(net)):
        count.add(position, row.param_bytes)
    return count.memory()


def tensor_content(tensor: str) -> str:
    """Return the common name of tensors with the same values in two axis orders."""
    return tensor.removesuffix(" (caffe)").removesuffix(" (channels last)")


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
