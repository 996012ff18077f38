"""``deepspark check --memory``: memory by layer, and changes to fit a training net into the memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from caffe_import.devices.compute_plan import ComputePlan
from caffe_import.devices.layer_memory import layer_rows
from caffe_import.devices.segments import choose_segments
from caffe_import.devices.stages import auto_placement
from caffe_import.devices.step_memory import StepMemory, step_memory, step_shape
from caffe_import.errors import CaffeImportError
from caffe_import.net.net_spec import NetSpec
from caffe_import.proto import caffe_pb2
from caffe_import.solver.solver_spec import SolverSpec
from caffe_import.solver.update_rules import RULES
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.devices.device_rows import device_rows
from deepspark_ops.devices.memory_there import gpu_memory_bytes, host_memory_bytes
from deepspark_ops.preflight.report import MemoryReport, MemoryRow, Problem, WorkReport
from deepspark_ops.sizes import size_text

_DEVICES_TRIED: Final = (2, 3, 4, 6, 8)


@dataclass(frozen=True)
class _Room:
    """Memory for the steps of some workers.

    Attributes:
        name: Name in words.
        n_bytes: Size of the memory.
        other_bytes: Needed bytes besides the steps.
        n_steps: Number of workers whose steps share the memory.
        is_device: Whether the memory belongs to one device, so that a placement over several devices helps.
    """

    name: str
    n_bytes: int
    other_bytes: int
    n_steps: int
    is_device: bool

    def needs(self, step: StepMemory) -> int:
        return self.other_bytes + self.n_steps * step.total_bytes

    def largest_batch(self, step: StepMemory, batch_size: int) -> int:
        """Return the largest batch_size whose step fits, 0 if none does; ``step`` has ``batch_size``."""
        low, high = 0, 1
        while self._holds(step, high / batch_size) and high < 2**24:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._holds(step, middle / batch_size) else (low, middle)
        return low

    def _holds(self, step: StepMemory, factor: float) -> bool:
        return self.needs(step.with_batch(factor)) <= self.n_bytes


def memory_rows(net: NetSpec, solver: SolverSpec) -> tuple[MemoryRow, ...]:
    """Return the memory of each layer of a training net, without automatic Split layers."""
    copies = 2 + RULES[solver.type].n_slots
    every = zip(net.layers, layer_rows(net), layer_rows(net, choose_segments(net)), strict=True)
    return tuple(
        MemoryRow(
            layer=layer.name,
            type=layer.type,
            bytes=plain.activation_bytes + copies * plain.param_bytes,
            activation_bytes=plain.activation_bytes,
            recompute_bytes=recomputed.activation_bytes,
            param_bytes=copies * plain.param_bytes,
        )
        for layer, plain, recomputed in every
        if layer.type != "Split"
    )


def memory_report(config: CheckConfig, net: NetSpec, solver: SolverSpec, work: WorkReport) -> MemoryReport:
    """Return the memory of a training step with and without recompute, and changes to make the step fit.

    Args:
        config: Config; ``memory_limit``, if set, is the available memory.
        net: The TRAIN net.
        solver: The solver; ``iter_size`` counts the passes of a single replica.
        work: Work of the whole run.
    """
    plain = step_memory(net, step_shape(solver))
    recomputed = step_memory(net, step_shape(solver), choose_segments(net))
    chosen = recomputed if config.recompute else plain
    room = _room(config, solver, work, chosen)
    fits = room.needs(chosen) <= room.n_bytes
    largest = {
        recompute: room.largest_batch(step, work.batch_size) for recompute, step in ((False, plain), (True, recomputed))
    }
    return MemoryReport(
        step_bytes=plain.total_bytes,
        recompute_step_bytes=recomputed.total_bytes,
        room=room.name,
        room_bytes=room.n_bytes,
        needed_bytes=room.needs(plain),
        recompute_needed_bytes=room.needs(recomputed),
        largest_batch=largest[False],
        recompute_largest_batch=largest[True],
        fits=fits,
        advice=() if fits else _advice(config, net, solver, room, largest, room.needs(recomputed)),
    )


def saved_by_recompute(config: CheckConfig, net: NetSpec, solver: SolverSpec) -> int:
    """Return the bytes saved by the config's ``recompute`` at a worker's peak; 0 without ``recompute``."""
    if not config.recompute:
        return 0
    plain, recomputed = (
        step_memory(net, step_shape(solver), segments).total_bytes for segments in ((), choose_segments(net))
    )
    return max(0, plain - recomputed)


def machine_notes(work: WorkReport) -> list[Problem]:
    """Return a warning if all workers and the driver together need more memory than this machine has."""
    needed, available = work.machine_bytes, host_memory_bytes()
    if needed <= available:
        return []
    finding = (
        f"{work.n_workers} workers and the driver need about {size_text(needed)}, this machine has "
        f"{size_text(available)}; take fewer workers, a smaller batch_size, --recompute, or more machines"
        " (deepspark check --memory shows the memory by layer)"
    )
    return [Problem(severity="warning", finding=finding)]


def _room(config: CheckConfig, solver: SolverSpec, work: WorkReport, step: StepMemory) -> _Room:
    if config.memory_limit is not None:
        return _Room("memory_limit, for one device", config.memory_limit, 0, 1, is_device=True)
    in_solver = solver.message.solver_mode == caffe_pb2.SolverParameter.GPU
    if (config.devices == "gpu" or (config.devices == "auto" and in_solver)) and (
        gpu_bytes := gpu_memory_bytes(os.environ)
    ) is not None:
        return _Room("the smallest GPU of this host", gpu_bytes, 0, 1, is_device=True)
    other_bytes = work.machine_bytes - work.n_workers * step.total_bytes
    name = f"this machine, for {work.n_workers} workers and the driver"
    return _Room(name, host_memory_bytes(), max(0, other_bytes), work.n_workers, is_device=False)


def _advice(
    config: CheckConfig, net: NetSpec, solver: SolverSpec, room: _Room, largest: Mapping[bool, int], with_recompute: int
) -> tuple[str, ...]:
    """Return a line per change to make the net fit, alone or with recompute; empty if the net fits."""
    advice = []
    batch = largest[config.recompute]
    if batch:
        advice.append(f"batch_size {batch:,} at most (a larger iter_size keeps the minibatch as it was)")
    if not config.recompute and with_recompute <= room.n_bytes:
        advice.append(f"--recompute: needs about {size_text(with_recompute)}")
    if not config.recompute and largest[True] > largest[False]:
        advice.append(f"--recompute with batch_size {largest[True]:,} at most")
    if room.is_device:
        advice += _placements_that_fit(net, solver, room)
    elif room.n_steps > 1:
        advice.append("fewer workers on this machine, or more machines")
    return tuple(advice)


def _placements_that_fit(net: NetSpec, solver: SolverSpec, room: _Room) -> list[str]:
    for n_devices in _DEVICES_TRIED:
        try:
            placement = auto_placement(net, n_devices, step_shape(solver, n_devices))
        except CaffeImportError:
            break
        rows = device_rows(ComputePlan(placement=placement), net, solver)
        fullest = max(row.memory_bytes for row in rows)
        if fullest <= room.n_bytes:
            return [f"--placement auto --gpus-per-worker {n_devices}: about {size_text(fullest)} on the fullest"]
    return []
