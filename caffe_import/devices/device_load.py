"""Work, memory and received bytes of a device with some of a net's layers, from shapes alone.

Times are counted in operations. Each byte read or written by a layer, and each byte from another device, counts as the
operations of a device in the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from caffe_import.devices.compute_plan import Placement
from caffe_import.devices.step_memory import MemoryCount, NetCosts, StepShape, tensor_content
from caffe_import.net.net_spec import LayerSpec, NetSpec

OPERATIONS_PER_BYTE: Final = 10.0
"""While one byte goes to or from memory: about 15 TFLOP/s beside 1.5 TB/s on a GPU, 100 GFLOP/s beside 10 GB/s on a
core."""
OPERATIONS_PER_BORDER_BYTE: Final = 500.0
"""While one byte comes from another device: 10 TFLOP/s beside 20 GB/s, PCIe of the fourth generation."""
_PARAM_BYTES_PER_PASS: Final = 4
"""Times that a pass touches each weight: read forward and backward, its gradient written and added to the others."""
_PARAM_BYTES_PER_UPDATE: Final = 3
"""Times that an update does: gradient read, weight read and written; each history blob is read and written, too."""


@dataclass(frozen=True)
class StageCost:
    """Load of one device in a training step.

    Attributes:
        time: Operations of one pass, forward and backward, with the bytes that are moved, in operations, and with the
            pass' share of the update.
        memory_bytes: Forecast of what the device keeps while a step runs.
        border_bytes: Bytes of one pass' blobs, and of shared parameters, that come from other devices; their gradients
            go the same way back.
    """

    time: float
    memory_bytes: int
    border_bytes: int


@dataclass(frozen=True)
class DeviceLoad(StageCost):
    """A device's load with the layers.

    Attributes:
        layers: The layers in net order, automatic Split layers left out; of a split layer the device has a share.
        flops: Floating-point operations of one pass, forward and backward.
    """

    layers: tuple[str, ...]
    flops: int


class LoadCount:
    """Adds up the layers of one device. Add them in net order."""

    def __init__(self, costs: NetCosts) -> None:
        """Begin with no layer."""
        self._costs = costs
        self._layers: list[str] = []
        self._present: set[str] = set(costs.sources)
        self._memory = MemoryCount(costs)
        self._blobs: set[int] = set()
        self._flops = 0.0
        self._touched = 0.0
        self._border_bytes = 0.0

    def add(self, position: int, *, n_shares: int = 1, joins: bool = True) -> None:
        """Add the layer at a position of the net; of a split layer, add a share of the outputs.

        Args:
            position: Of the layer.
            n_shares: Devices that share its outputs.
            joins: Does this device put the shares together?
        """
        costs, layer = self._costs, self._costs.net.layers[position]
        layer_tensors = costs.tensors[position]
        if layer.type != "Split":
            self._layers.append(layer.name)
        made_bytes = {tensor.name: tensor.n_bytes for tensor in layer_tensors.makes}
        for name in layer_tensors.reads:
            if tensor_content(name) not in self._present:
                self._present.add(tensor_content(name))
                self._border_bytes += costs.bytes_of[name]
        if joins:
            self._border_bytes += sum(made_bytes.values()) * (1 - 1 / n_shares)
            self._present.update(tensor_content(name) for name in made_bytes)
        directions = _directions(layer) + (costs.needs[position].segment is not None)
        self._flops += layer.definition.flops * directions / n_shares
        moved = sum(costs.bytes_of[name] for name in layer_tensors.reads) + sum(made_bytes.values()) / n_shares
        self._touched += moved * (2 if layer.needs_backward else 1)
        self._memory.add(position, self._add_blobs(position, layer, n_shares))

    def _add_blobs(self, position: int, layer: LayerSpec, n_shares: int) -> float:
        """Return the bytes of a layer's own parameters; count what comes from other devices."""
        entries = self._costs.net.params.entries
        owned_bytes = 0.0
        for blob in self._costs.blobs[position] - self._blobs:
            self._blobs.add(blob)
            n_bytes = 4 * entries[blob].size / n_shares
            if entries[blob].layer == layer.name:
                owned_bytes += n_bytes
            else:
                self._border_bytes += n_bytes
        return owned_bytes

    def cost(self) -> StageCost:
        """Return the cost of the layers so far, in a time that does not depend on their number."""
        step = self._costs.step
        touches = _PARAM_BYTES_PER_PASS + (_PARAM_BYTES_PER_UPDATE + 2 * step.n_slots) / step.n_passes
        moved = self._touched + touches * self._memory.param_bytes
        # Values come, their gradients go.
        over_border = 2 * self._border_bytes
        return StageCost(
            time=self._flops + OPERATIONS_PER_BYTE * moved + OPERATIONS_PER_BORDER_BYTE * over_border,
            memory_bytes=self._memory.memory().total_bytes,
            border_bytes=round(self._border_bytes),
        )

    def load(self) -> DeviceLoad:
        """Return what was added so far."""
        cost = self.cost()
        return DeviceLoad(cost.time, cost.memory_bytes, cost.border_bytes, tuple(self._layers), round(self._flops))


def device_loads(
    net: NetSpec, placement: Placement, step: StepShape, segments: Sequence[Sequence[str]] = ()
) -> tuple[DeviceLoad, ...]:
    """Return the load of each device of a placement, in the order of the devices.

    Args:
        net: The training net.
        placement: Which layer is where.
        step: What a step repeats.
        segments: As ``ComputePlan.recompute``.
    """
    costs = NetCosts(net, step, segments)
    counts = [LoadCount(costs) for _ in range(placement.n_devices)]
    for position, layer in enumerate(net.layers):
        where = placement.split.get(layer.name)
        if where is None:
            counts[placement.device_of[layer.name]].add(position)
            continue
        for device in where:
            counts[device].add(position, n_shares=len(where), joins=device == where[0])
    return tuple(count.load() for count in counts)


def _directions(layer: LayerSpec) -> int:
    """Return how often the operations of a forward pass are done: forward, for the bottoms, for the parameters."""
    if not layer.needs_backward:
        return 1
    return 1 + any(layer.propagate_down) + any(layer.param_propagate_down)
