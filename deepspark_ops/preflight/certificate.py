"""Compares this installation with recorded outputs of Caffe, for the layer types of a net.

The comparison needs TensorFlow and runs in a separate process (``python -m caffe_import.parity``).
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any, Final

from caffe_import.extras import require
from caffe_import.parity.case import RECORDED_CASES, Case, load_cases
from deepspark_ops.devices.host_gpus import without_gpus
from deepspark_ops.errors import ConfigError, DeepSparkError
from deepspark_ops.preflight.passed_cases import PassedCases
from deepspark_ops.preflight.report import Certificate, ParityReport, PreflightReport, Problem
from deepspark_ops.run_paths import write_text_whole

CERTIFICATE_VERSION: Final = 2
_log = logging.getLogger(__name__)


def write_certificate(report: PreflightReport, cases: Path | None, path: Path) -> None:
    """Write the comparison of a report from ``certified``; the file is complete or absent.

    Args:
        report: The report.
        cases: Folder of cases that ``certified`` used.
        path: The run's ``parity.json``.
    """
    failed = (problem.finding for problem in report.problems if problem.finding.startswith(_FAILED))
    certificate = Certificate(
        format_version=CERTIFICATE_VERSION,
        cases=str(cases or RECORDED_CASES),
        tensorflow=_tensorflow_version(),
        parity=report.parity,
        failed=tuple(failed),
    )
    write_text_whole(path, certificate.model_dump_json(indent=1) + "\n")


def certified(report: PreflightReport, folder: Path | None, *, on_gpu: bool = False) -> PreflightReport:
    """Return the report with the comparison for the layer types of the nets; a failed case becomes an error.

    A case that has passed on this host's CPU is not computed again by the same code, see ``PassedCases``.

    Args:
        report: Report with the layer types.
        folder: Folder with recorded cases; None for the cases in the package.
        on_gpu: Compare on the first GPU, within the bounds of GPUs; else on the CPU, and no GPU is touched.

    Raises:
        ConfigError: The folder has no cases.
        DeepSparkError: The comparison ended without a result.
    """
    folder = folder or RECORDED_CASES
    cases = _cases_of(report.layer_types, folder)
    outcomes = _outcomes(folder, [case for type_cases in cases.values() for case in type_cases], on_gpu=on_gpu)
    failed = [
        Problem(severity="error", finding=f"{_FAILED}{name}: {outcome['status']}: {'; '.join(outcome['faults'])}")
        for name, outcome in outcomes.items()
        if outcome["status"] != "passed"
    ]
    parity = tuple(_row(kind, [outcomes[case.name] for case in type_cases]) for kind, type_cases in cases.items())
    return report.model_copy(update={"parity": parity, "problems": (*failed, *report.problems)})


@cache
def _tensorflow_version() -> str:
    # Not version("tensorflow"): tensorflow-cpu has the same package by another distribution.
    return " ".join(version(name) for name in sorted(set(packages_distributions().get("tensorflow", ()))))


_FAILED: Final = "parity: case "


def _cases_of(types: Collection[str], folder: Path) -> dict[str, list[Case]]:
    try:
        recorded = load_cases(folder)
    except (OSError, ValueError, KeyError) as error:
        msg = f"parity_cases={folder}: no recorded cases: {error}; give a folder with an index.json"
        raise ConfigError(msg) from error
    return {
        name: [case for case in recorded if case.kind == "layer" and case.record.get("layer_type") == name]
        for name in types
    }


def _outcomes(folder: Path, cases: Sequence[Case], *, on_gpu: bool) -> Mapping[str, Mapping[str, Any]]:
    """Return the outcome of every case by name: of an earlier comparison, else computed."""
    passed = PassedCases(_tensorflow_version(), os.environ)
    passed_before = {} if on_gpu else passed.errors(cases)
    if passed_before:
        n_before = len(passed_before)
        _log.info("parity: %d of %d cases have passed on this host before, by the same code", n_before, len(cases))
    computed = _compare(folder, [case.name for case in cases if case.name not in passed_before], on_gpu=on_gpu)
    errors = {name: float(outcome["worst"]) for name, outcome in computed.items() if outcome["status"] == "passed"}
    if errors and not on_gpu:
        passed.add(cases, errors)
    return {**{name: {"status": "passed", "worst": error} for name, error in passed_before.items()}, **computed}


def _compare(folder: Path, names: Sequence[str], *, on_gpu: bool) -> Mapping[str, Mapping[str, Any]]:
    """Return the outcome of every case by name."""
    if not names:
        return {}
    require("tensorflow", part="the comparison with Caffe")
    device = "GPU:0" if on_gpu else "CPU:0"
    command = [sys.executable, "-m", "caffe_import.parity", str(folder), "--json", "--device", device, "--only", *names]
    environment = dict(os.environ) if on_gpu else without_gpus(os.environ)
    completed = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    try:
        outcomes = {outcome["name"]: outcome for outcome in json.loads(completed.stdout)["cases"]}
    except ValueError as error:
        last = (completed.stderr.strip().splitlines() or ["no message"])[-1]
        msg = f"parity: the comparison ended with code {completed.returncode} and no result: {last}"
        raise DeepSparkError(msg) from error
    return outcomes


def _row(layer_type: str, outcomes: Sequence[Mapping[str, Any]]) -> ParityReport:
    return ParityReport(
        layer_type=layer_type,
        n_cases=len(outcomes),
        n_passed=sum(outcome["status"] == "passed" for outcome in outcomes),
        largest_error=max((float(outcome["worst"]) for outcome in outcomes), default=None),
    )
