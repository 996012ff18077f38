"""Compares this installation with recorded outputs of Caffe, for the layer types that a net uses.

The comparison needs TensorFlow, so it runs in a process of its own (``python -m caffe_import.parity``).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from caffe_import.parity.case import Case, load_cases
from deepspark_ops.errors import ConfigError, DeepSparkError
from deepspark_ops.preflight.report import ParityReport, PreflightReport, Problem

CHECKOUT_CASES: Final = Path(__file__).parents[2] / "tests" / "fixtures" / "caffe"
"""The recorded cases of a checkout; an installed package comes without them."""


def certified(report: PreflightReport, folder: Path | None) -> PreflightReport:
    """Return the report with the comparison for the layer types of its nets; a case that fails is an error in it.

    Args:
        report: Its nets say which types.
        folder: Folder with recorded cases; None for the checkout's.

    Raises:
        ConfigError: The folder has no cases.
        DeepSparkError: The comparison ended without a result.
    """
    types = sorted({layer.type for net in report.nets for layer in net.layers})
    cases = _cases_of(types, folder or CHECKOUT_CASES)
    outcomes = _compare(folder or CHECKOUT_CASES, [case.name for own in cases.values() for case in own])
    failed = [
        Problem(severity="error", finding=f"parity: case {name}: {outcome['status']}: {'; '.join(outcome['faults'])}")
        for name, outcome in outcomes.items()
        if outcome["status"] != "passed"
    ]
    parity = tuple(_row(kind, [outcomes[case.name] for case in own]) for kind, own in cases.items())
    return report.model_copy(update={"parity": parity, "problems": (*failed, *report.problems)})


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


def _compare(folder: Path, names: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    """Return the outcome of every case by name."""
    if not names:
        return {}
    command = [sys.executable, "-m", "caffe_import.parity", str(folder), "--json", "--only", *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        outcomes = {outcome["name"]: outcome for outcome in json.loads(done.stdout)["cases"]}
    except ValueError as error:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        msg = f"parity: the comparison ended with code {done.returncode} and no result: {last}"
        raise DeepSparkError(msg) from error
    return outcomes


def _row(layer_type: str, outcomes: Sequence[Mapping[str, Any]]) -> ParityReport:
    return ParityReport(
        layer_type=layer_type,
        n_cases=len(outcomes),
        n_passed=sum(outcome["status"] == "passed" for outcome in outcomes),
        largest_error=max((float(outcome["worst"]) for outcome in outcomes), default=None),
    )
