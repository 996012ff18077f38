"""What is generated of the Python API is what the config models say now."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.test_readme import load_script
from tests.paths import ROOT


def test_stub_has_the_arguments_of_the_config_models() -> None:
    script = load_script("python_reference")
    assert script.STUB.read_text(encoding="utf-8") == script.stub(), "calls.pyi is out of date; run: make format"


def test_reference_of_the_docs_is_the_code_s() -> None:
    script = load_script("python_reference")
    page = script.PAGE.read_text(encoding="utf-8")
    assert script.BEGIN in page
    assert script.updated(page) == page, "docs/python.md is out of date; run: make format"


def test_every_argument_and_member_is_described() -> None:
    script = load_script("python_reference")
    assert "| `" in script.reference()
    for row in script.reference().splitlines():
        assert not row.endswith("` |  |"), row


TYPED = """
import deepspark_ops as ds

run = ds.train("a", run_dir="b", n_workers=3, weights=["c"], comm_period="1@0 10@20")
reveal_type(run)
ds.train("a", run_dir="b", n_worker=3)
ds.train("a", run_dir="b", n_workers="3")
ds.train("a")
ds.train("a", run_dir="b", lock="wrong")
reveal_type(ds.export(run))
"""


@pytest.mark.long
def test_mypy_knows_the_arguments_and_results(tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text(TYPED)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", str(tmp_path / "typed.py")],
        cwd=ROOT, env={**os.environ, "MYPYPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [line.partition("typed.py:")[2] for line in done.stdout.splitlines() if "typed.py:" in line]
    assert [line.partition(": note: Revealed type is ")[2] for line in lines if "Revealed" in line] == [
        '"deepspark_ops.api.results.run.Run"', '"deepspark_ops.api.results.bundle.Bundle"',
    ]  # fmt: skip
    assert [line.rpartition("[")[2] for line in lines if ": error:" in line] == [
        "call-arg]", "arg-type]", "call-arg]", "arg-type]",
    ]  # fmt: skip
