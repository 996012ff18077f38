"""From options to the plan of a training step: the one place where they meet the net."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from caffe_import.devices.compute_plan import ComputePlan
from caffe_import.devices.placement_file import read_placement
from caffe_import.net.net_spec import NetSpec
from caffe_import.solver.solver_spec import SolverSpec
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError


def compute_plan(config: TrainConfig | CheckConfig, net: NetSpec, solver: SolverSpec) -> ComputePlan:
    """Return how a worker computes a training step of ``net``.

    Args:
        config: The options, paths absolute.
        net: The training net.
        solver: The solver as its file has it; of replicas it counts the passes of one.

    Raises:
        ConfigError: Options that do not fit the net or each other.
        PlacementError: The placement's file.
    """
    del solver
    n_devices = config.gpus_per_worker
    if isinstance(config.placement, Path):
        placement = read_placement(config.placement, net, n_devices)
        return ComputePlan(placement=placement) if n_devices > 1 else ComputePlan()
    if config.placement == "none":
        return ComputePlan(n_replicas=n_devices)
    msg = f"placement={config.placement}: is not there yet; allowed: none or a file"
    raise ConfigError(msg)


def with_replicas(solver: SolverSpec, plan: ComputePlan) -> SolverSpec:
    """Return the solver whose iter_size counts the passes of all replicas, as ``ComputePlan`` wants it."""
    return replace(solver, iter_size=solver.iter_size * plan.n_replicas)
