"""Every recorded case of Caffe, a test each: the selection in the repository, or a full set named by a variable."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from caffe_import.parity.case import Case, Outcome, load_cases, run_case
from tests.paths import ROOT

pytestmark = pytest.mark.tf

_SELECTION = ROOT / "tests" / "fixtures" / "caffe"
_FULL_SET = os.environ.get("DEEPSPARK_CAFFE_ORACLE")  # .ci/run sets it where the folder is
_FOLDER = Path(_FULL_SET) if _FULL_SET else _SELECTION
_UNSUPPORTED = Path(__file__).with_name("unsupported.txt")


def _unsupported() -> frozenset[str]:
    lines = _UNSUPPORTED.read_text(encoding="utf-8").splitlines()
    return frozenset(line.strip() for line in lines if line.strip() and not line.startswith("#"))


def _check(outcome: Outcome) -> None:
    if outcome.name in _unsupported():
        assert outcome.status != "passed", f"{outcome.name} passes: take it out of {_UNSUPPORTED.name}"
    else:
        assert outcome.status == "passed", "\n".join(outcome.faults)


@pytest.mark.parametrize("case", load_cases(_FOLDER), ids=lambda case: case.name)
def test_case(case: Case) -> None:
    _check(run_case(case))


def test_selection_has_every_kind_of_case() -> None:
    kinds = {case.kind for case in load_cases(_SELECTION)}
    assert kinds == {"layer", "net", "solver", "snapshot", "transform", "filler", "model_file", "file", "upgrade"}


def test_unsupported_names_are_cases() -> None:
    assert _unsupported() <= {case.name for case in load_cases(_FOLDER)}
