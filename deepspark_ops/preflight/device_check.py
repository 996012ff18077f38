"""Checks the options for a worker's devices against the training net, and reports the work of each device."""

from __future__ import annotations

import os
from dataclasses import dataclass

from caffe_import.devices.compute_plan import PLAIN, ComputePlan, Precision
from caffe_import.devices.precision_types import layers_in_16_bit
from caffe_import.errors import CaffeImportError
from caffe_import.net.net_spec import NetSpec
from caffe_import.solver.solver_spec import SolverSpec
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.devices.compute_plan import compute_plan, precision_note, with_replicas
from deepspark_ops.devices.device_rows import DeviceRow, device_rows, placement_notes
from deepspark_ops.devices.worker_rows import worker_rows
from deepspark_ops.errors import DeepSparkError
from deepspark_ops.preflight.report import NetReport, Problem, WorkReport
from deepspark_ops.sizes import size_text


@dataclass(frozen=True)
class DeviceFindings:
    """Result of the check of devices.

    Attributes:
        solver: The solver with the passes of all replicas.
        devices: A row per device of a placement.
        problems: Options that do not fit, and advice.
        plan: Plan of the training step; the plain plan if the options do not fit.
    """

    solver: SolverSpec
    devices: tuple[DeviceRow, ...]
    problems: tuple[Problem, ...]
    plan: ComputePlan = PLAIN


def check_devices(config: CheckConfig, net: NetSpec, solver: SolverSpec) -> DeviceFindings:
    """Return the findings for a training net and the unchanged solver."""
    plan, problems = ComputePlan(), []
    try:
        plan = compute_plan(config, net, solver)
    except (CaffeImportError, DeepSparkError) as error:
        problems.append(Problem(severity="error", finding=str(error)))
    of_all = with_replicas(solver, plan)
    rows = device_rows(plan, net, of_all)
    notes = placement_notes(rows, of_all, is_asked=config.placement != "none" and not problems)
    problems += [Problem(severity="warning", finding=note) for note in notes]
    note = precision_note(plan, net)
    if note is not None and not layers_in_16_bit(net):
        problems.append(Problem(severity="warning", finding=note))
    return DeviceFindings(of_all, rows, tuple(problems), plan)


def with_worker_devices(
    work: WorkReport, config: CheckConfig, plan: ComputePlan, net: NetSpec, solver: SolverSpec
) -> tuple[WorkReport, list[Problem]]:
    """Return the work with each worker's devices, and a warning for each device with too little memory.

    ``solver`` is unchanged from the file. The warning about too little memory for all workers together comes from
    ``machine_notes``.
    """
    rows = worker_rows(
        config, plan, net, solver, os.environ, process_bytes=work.worker_bytes, driver_bytes=work.driver_bytes
    )
    problems = []
    for row in rows:
        if row.is_too_large and row.computes_on == "GPU" and row.there_bytes is not None:
            finding = (
                f"device {row.device} of a worker needs about {size_text(row.needed_bytes)}, {row.room} has"
                f" {size_text(row.there_bytes)}; take a smaller batch_size, --recompute or --placement auto"
                " (deepspark check --memory shows where it goes)"
            )
            problems.append(Problem(severity="warning", finding=finding))
    return work.model_copy(update={"worker_devices": rows}), problems


def with_precision_notes(report: NetReport, net: NetSpec, precision: Precision) -> NetReport:
    """Return the training net's report with a note at each layer in 16 bits."""
    names = layers_in_16_bit(net) if precision != "float32" else ()
    layers = tuple(
        layer.model_copy(update={"notes": (*layer.notes, f"computes in {precision} in training")})
        if layer.name in names
        else layer
        for layer in report.layers
    )
    return report.model_copy(update={"layers": layers})
