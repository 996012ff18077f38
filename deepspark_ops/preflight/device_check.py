"""Whether the options about a worker's devices fit the training net, and what each device will do."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from caffe_import.devices.compute_plan import ComputePlan
from caffe_import.errors import CaffeImportError
from caffe_import.net.net_spec import NetSpec
from caffe_import.solver.solver_spec import SolverSpec
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.devices.compute_plan import compute_plan, with_replicas
from deepspark_ops.devices.device_rows import device_rows, placement_notes
from deepspark_ops.errors import DeepSparkError
from deepspark_ops.preflight.report import DeviceReport, Problem


@dataclass(frozen=True)
class DeviceFindings:
    """What was found.

    Attributes:
        solver: The solver with the passes of all replicas.
        devices: One per device of a placement.
        problems: An option that does not fit, or what to look at.
    """

    solver: SolverSpec
    devices: tuple[DeviceReport, ...]
    problems: tuple[Problem, ...]


def check_devices(config: CheckConfig, net: NetSpec, solver: SolverSpec) -> DeviceFindings:
    """Return what the options make of a training net and the solver as its file has it."""
    plan, problems = ComputePlan(), []
    try:
        plan = compute_plan(config, net, solver)
    except (CaffeImportError, DeepSparkError) as error:
        problems.append(Problem(severity="error", finding=str(error)))
    of_all = with_replicas(solver, plan)
    rows = device_rows(plan, net, of_all)
    problems += [Problem(severity="warning", finding=note) for note in placement_notes(rows, of_all)]
    return DeviceFindings(of_all, tuple(DeviceReport(**asdict(row)) for row in rows), tuple(problems))
