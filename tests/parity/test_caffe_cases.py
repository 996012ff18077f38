"""Every recorded case of Caffe, one test each: the selection in the repository, and the full set where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from caffe_import.parity.case import Case, Outcome, load_cases, run_case
from tests.paths import ROOT

pytestmark = pytest.mark.tf

_SELECTION = ROOT / "tests" / "fixtures" / "caffe"
_FULL_SET = ROOT.parent / "shared" / "caffe_oracle"
_UNSUPPORTED = Path(__file__).with_name("unsupported.txt")


def _unsupported() -> frozenset[str]:
    lines = _UNSUPPORTED.read_text(encoding="utf-8").splitlines()
    return frozenset(line.strip() for line in lines if line.strip() and not line.startswith("#"))


def _cases(folder: Path) -> list[Case]:
    return load_cases(folder) if (folder / "index.json").exists() else []


def _check(outcome: Outcome) -> None:
    if outcome.name in _unsupported():
        assert outcome.status != "passed", f"{outcome.name} passes: take it out of {_UNSUPPORTED.name}"
    else:
        assert outcome.status == "passed", "\n".join(outcome.faults)


@pytest.mark.parametrize("case", _cases(_SELECTION), ids=lambda case: case.name)
def test_case_of_the_selection(case: Case) -> None:
    _check(run_case(case))


@pytest.mark.slow
@pytest.mark.parametrize("case", _cases(_FULL_SET), ids=lambda case: case.name)
def test_case_of_the_full_set(case: Case) -> None:
    _check(run_case(case))


def test_selection_has_every_kind_of_case() -> None:
    kinds = {case.kind for case in _cases(_SELECTION)}
    assert kinds == {"layer", "net", "solver", "snapshot", "transform", "filler", "model_file", "file", "upgrade"}


def test_unsupported_names_are_cases() -> None:
    known = {case.name for folder in (_SELECTION, _FULL_SET) for case in _cases(folder)}
    assert _unsupported() <= known
