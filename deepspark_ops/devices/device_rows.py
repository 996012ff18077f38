"""Work of each device of a worker under a placement, as rows for check and for the log of a run, with advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from caffe_import.devices.compute_plan import ComputePlan
from caffe_import.devices.device_load import device_loads
from caffe_import.devices.step_memory import step_shape
from caffe_import.net.net_spec import NetSpec
from caffe_import.solver.solver_spec import SolverSpec
from deepspark_ops.sizes import share_text, size_text

_IDLE_NOTED: Final = 0.25
"""Check and log give advice above this idle share of all devices' time."""
_IDLE_AIMED: Final = 0.2
_UNEQUAL_NOTED: Final = 1.5
"""Longest stage relative to the mean of all stages."""


@dataclass(frozen=True)
class DeviceRow:
    """A device of a worker.

    Attributes:
        device: Number of the device.
        layers: Layers of the device in net order.
        flops: Floating-point operations of one pass, forward and backward.
        time_share: Share of the device in a pass' time, forecast from operations and bytes moved.
        idle_share: Share of a step's time in which the device waits for others, if each pass goes from device to
            device.
        memory_bytes: Forecast of the memory during a step.
        border_bytes: Bytes from other devices in one pass; their gradients go back.
    """

    device: int
    layers: tuple[str, ...]
    flops: int
    time_share: float
    idle_share: float
    memory_bytes: int
    border_bytes: int

    @property
    def extent(self) -> str:
        """First and last layer of the device."""
        if len(self.layers) < 2:
            return "".join(self.layers) or "no layer"
        return f"{self.layers[0]} .. {self.layers[-1]}"

    def __str__(self) -> str:
        """Return the row as a line of a log."""
        return (
            f"device {self.device}: {self.extent} ({len(self.layers)} layers), {share_text(self.time_share, 0)} of the"
            f" time, about {size_text(self.memory_bytes)}; gets {size_text(self.border_bytes)} a pass from others"
        )


def device_rows(plan: ComputePlan, net: NetSpec, solver: SolverSpec) -> tuple[DeviceRow, ...]:
    """Return a row per device of a placement; empty without a placement."""
    if plan.placement is None:
        return ()
    loads = device_loads(net, plan.placement, step_shape(solver, plan.n_devices), plan.recompute)
    times = [load.time for load in loads]
    step = step_time(times, solver.iter_size)
    return tuple(
        DeviceRow(
            device=device,
            layers=load.layers,
            flops=load.flops,
            time_share=load.time / sum(times) if sum(times) else 0.0,
            idle_share=1 - solver.iter_size * load.time / step if step else 0.0,
            memory_bytes=load.memory_bytes,
            border_bytes=load.border_bytes,
        )
        for device, load in enumerate(loads)
    )


def step_time(times: Sequence[float], n_passes: int) -> float:
    """Return the time of a step whose passes go from device to device, each pass starting as soon as possible.

    Huang et al., "GPipe" (2019), section 2.3: of S equal stages and m passes (S - 1) / (m + S - 1) of the time is idle.

    Example:
        >>> step_time([2.0, 2.0, 2.0], 4)  # 8 of 12 in work, 4 of 12 idle
        12.0
    """
    return sum(times) + (n_passes - 1) * max(times, default=0.0)


def placement_notes(rows: Sequence[DeviceRow], solver: SolverSpec, *, is_asked: bool) -> list[str]:
    """Return advice about a placement: devices without work, unequal stages, idle devices.

    Args:
        rows: Result of ``device_rows``.
        solver: The solver.
        is_asked: Does the config ask for a placement?
    """
    if not rows:
        missing = (
            "placement: there is nothing to lay out with gpus_per_worker=1; give the number of devices, or leave it out"
        )
        return [missing] if is_asked else []
    notes = [
        f"device {row.device} computes no layer; give gpus_per_worker={len(rows) - 1} or name it in the placement"
        for row in rows
        if not row.layers
    ]
    return [*notes, *_of_unequal(rows), *_of_waiting(rows, solver.iter_size)]


def _of_unequal(rows: Sequence[DeviceRow]) -> list[str]:
    longest = max(rows, key=lambda row: row.time_share)
    of_mean = longest.time_share * len(rows)
    if of_mean <= _UNEQUAL_NOTED:
        return []
    return [
        f"device {longest.device} ({longest.extent}) has {share_text(longest.time_share, 0)} of the work of {len(rows)}"
        f" devices: {share_text(1 - 1 / of_mean, 0)} of their time is idle however many passes a step has; give it"
        " fewer layers, split one of them, or take fewer devices"
    ]


def _of_waiting(rows: Sequence[DeviceRow], n_passes: int) -> list[str]:
    idle = sum(row.idle_share for row in rows) / len(rows)
    needed_passes = ceil((1 - _IDLE_AIMED) / _IDLE_AIMED * (len(rows) - 1))
    if idle <= _IDLE_NOTED or n_passes >= needed_passes:
        return []
    smaller = f"{needed_passes / n_passes:.3g}"
    return [
        f"with iter_size {n_passes} the {len(rows)} devices wait for each other {share_text(idle, 0)} of the time;"
        f" passes that follow each other keep them busy: iter_size {needed_passes} with a batch_size {smaller} times"
        " smaller is the same minibatch (BatchNorm excepted)"
    ]
