"""Plan of a training step, from the options and the net."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from caffe_import.devices.compute_plan import ComputePlan, Placement
from caffe_import.devices.placement_file import read_placement
from caffe_import.devices.precision_types import layers_in_16_bit
from caffe_import.devices.segments import choose_segments
from caffe_import.devices.stages import auto_placement
from caffe_import.devices.step_memory import step_shape
from caffe_import.net.net_spec import NetSpec
from caffe_import.solver.solver_spec import SolverSpec
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError


def compute_plan(config: TrainConfig | CheckConfig, net: NetSpec, solver: SolverSpec) -> ComputePlan:
    """Return the plan of a worker's training step of ``net``.

    Args:
        config: The options, paths absolute.
        net: The training net.
        solver: The solver as in its file; ``iter_size`` counts the passes of a single replica.

    Raises:
        ConfigError: Recompute with debug_info.
        PlacementError: The placement's file does not fit the net or the devices, or there are more devices than stages.
    """
    placement = _placement(config, net, solver)
    return ComputePlan(
        n_replicas=config.gpus_per_worker if config.placement == "none" else 1,
        placement=placement,
        recompute=_segments(net, solver, placement) if config.recompute else (),
        precision=config.precision,
    )


def _placement(config: TrainConfig | CheckConfig, net: NetSpec, solver: SolverSpec) -> Placement | None:
    """Return device of each layer; None if all layers are on the same device."""
    n_devices = config.gpus_per_worker
    placement = None
    if isinstance(config.placement, Path):
        placement = read_placement(config.placement, net, n_devices)
    elif config.placement == "auto":
        placement = auto_placement(net, n_devices, step_shape(solver, n_devices))
    return placement if n_devices > 1 else None


def _segments(net: NetSpec, solver: SolverSpec, placement: Placement | None) -> tuple[tuple[str, ...], ...]:
    if solver.debug_info and solver.display > 0:
        msg = (
            "recompute: debug_info shows data and gradient of every blob, and recomputing keeps few of them;"
            " give one: --recompute, or --overrides 'debug_info: false' for the run that recomputes"
        )
        raise ConfigError(msg)
    return choose_segments(net, placement)


def precision_note(plan: ComputePlan, net: NetSpec) -> str | None:
    """Return the line of a run's log about the arithmetic; None for float32."""
    if plan.precision == "float32":
        return None
    names = layers_in_16_bit(net)
    if not names:
        return f"precision={plan.precision}: no layer of the training net computes in 16 bits, so it changes nothing"
    return f"precision={plan.precision}: {len(names)} of {len(net.layers)} layers compute in it: {', '.join(names)}"


def with_replicas(solver: SolverSpec, plan: ComputePlan) -> SolverSpec:
    """Return the solver whose iter_size counts the passes of all replicas, as ``ComputePlan`` requires."""
    return replace(solver, iter_size=solver.iter_size * plan.n_replicas)
