"""``deepspark check --parity``: the comparison with recorded outputs of Caffe, in its own process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from caffe_import.parity import __main__ as parity
from caffe_import.parity.case import RECORDED_CASES
from deepspark_ops.preflight import certificate
from tests.reference.command_line import invoke

pytestmark = pytest.mark.tf

NET = """
layer { name: "in" type: "DummyData" top: "x" top: "label"
  dummy_data_param { shape { dim: 2 dim: 4 } shape { dim: 2 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 3 } }
layer { name: "relu" type: "ReLU" bottom: "ip" top: "ip" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SCRIPT = """
import sys
from deepspark_ops.command import cli
try:
    cli.main()
finally:
    assert "tensorflow" not in sys.modules
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text('net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 5')
    return tmp_path


def parity_check(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT, "check", "solver.prototxt", "--parity", "--json", *options]
    environment = {**os.environ, "TMPDIR": str(folder)}  # where no case has passed before
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)


START = subprocess.run


def compare_here(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the comparison in this process, and start any other program: the other test starts the comparison, too."""
    if "caffe_import.parity" not in command:
        return START(command, **options)
    with redirect_stdout(StringIO()) as output, redirect_stderr(StringIO()) as errors:
        exit_code = parity.main(command[command.index("caffe_import.parity") + 1 :])
    return subprocess.CompletedProcess(command, exit_code, output.getvalue(), errors.getvalue())


def test_layer_types_of_the_net_agree_with_caffe(folder: Path) -> None:
    completed = parity_check(folder)
    assert completed.returncode == 0, completed.stderr
    rows = {row["layer_type"]: row for row in json.loads(completed.stdout)["parity"]}
    assert sorted(rows) == ["DummyData", "InnerProduct", "ReLU", "SoftmaxWithLoss"]
    assert rows["SoftmaxWithLoss"]["n_passed"] == rows["SoftmaxWithLoss"]["n_cases"] == 7
    assert 0 < rows["InnerProduct"]["largest_error"] < 1e-4


def test_other_numbers_than_the_recorded_ones_fail_the_check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = json.loads((RECORDED_CASES / "index.json").read_text())
    case = next(case for case in index["cases"] if case.get("layer_type") == "ReLU")
    for name in case["files"]:
        (folder / "cases" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(RECORDED_CASES / name, folder / "cases" / name)
    archive = folder / "cases" / next(name for name in case["files"] if name.endswith(".npz"))
    with np.load(archive) as recorded:
        members = {name: recorded[name] for name in recorded.files}
    members["top/y"] = 2 * members["top/y"]
    np.savez(archive, **members)
    (folder / "cases" / "index.json").write_text(json.dumps({"cases": [case]}))
    monkeypatch.chdir(folder)
    monkeypatch.setattr(certificate.subprocess, "run", compare_here)
    result = invoke("check", "solver.prototxt", "--parity", "--json", "--parity-cases", folder / "cases")
    assert result.exit_code == 2
    assert f"parity: case {case['name']}: failed: " in result.stderr
    rows = {row["layer_type"]: row for row in json.loads(result.stdout)["parity"]}
    assert rows["ReLU"]["n_passed"] == 0
    assert rows["ReLU"]["largest_error"] == pytest.approx(0.5)
