"""The generated pages and stubs of the Python API agree with the config models."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from docs.generate import python
from tests.paths import ROOT


def test_every_argument_and_member_is_described() -> None:
    page = python.page()
    assert "| `" in page
    for row in page.splitlines():
        assert not row.endswith("` |  |"), row


TYPED = """
import deepspark_ops as ds

run = ds.train("a", run_dir="b", n_workers=3, weights=["c"], comm_period="1@0 10@20")
reveal_type(run)
ds.train("a", run_dir="b", n_worker=3)
ds.train("a", run_dir="b", min_workers="3")
ds.train("a")
ds.train("a", run_dir="b", lock="wrong")
reveal_type(ds.export(run))
"""


@pytest.mark.long
def test_mypy_knows_the_arguments_and_results(tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text(TYPED)
    completed = subprocess.run(
        [sys.executable, "-m", "mypy", str(tmp_path / "typed.py")],
        cwd=ROOT, env={**os.environ, "MYPYPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [line.partition("typed.py:")[2] for line in completed.stdout.splitlines() if "typed.py:" in line]
    assert [line.partition(": note: Revealed type is ")[2] for line in lines if "Revealed" in line] == [
        '"deepspark_ops.api.results.run.Run"', '"deepspark_ops.api.results.bundle.Bundle"',
    ]  # fmt: skip
    assert [line.rpartition("[")[2] for line in lines if ": error:" in line] == [
        "call-arg]", "arg-type]", "call-arg]", "arg-type]",
    ]  # fmt: skip
