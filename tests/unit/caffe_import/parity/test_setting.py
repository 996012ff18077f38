"""The comparison with Caffe on a device of choice, and how near each kind of arithmetic must come."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import astuple
from itertools import pairwise

import pytest

from caffe_import.parity.__main__ import main
from caffe_import.parity.findings import Findings
from caffe_import.parity.setting import BOUNDS, Setting
from tests.paths import FIXTURES, ROOT

pytestmark = pytest.mark.tf


@pytest.mark.long
def test_recorded_cases_hold_on_a_device_and_are_computed_there() -> None:
    command = [sys.executable, "-m", "tests.unit.caffe_import.parity.cases_on_a_device"]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr[-4000:]
    outcomes = json.loads(completed.stdout)
    rounded = outcomes.pop("in 16 bits")
    for name, outcome in outcomes.items():
        assert outcome["status"] == "passed", (name, outcome["faults"])
        assert outcome["read_back"] > 0, name
    assert rounded["status"] == "passed", rounded["faults"]
    assert rounded["worst"] > BOUNDS["gpu"].backward


def test_fewer_bits_may_be_further_from_caffe() -> None:
    wider = [astuple(BOUNDS[name]) for name in ("cpu", "gpu", "tf32", "bfloat16")]
    for narrow, wide in pairwise(wider):
        assert all(a < b for a, b in zip(narrow, wide, strict=True))


def test_a_comparison_takes_the_bounds_of_its_setting() -> None:
    assert Findings().bounds == BOUNDS["cpu"]
    assert Findings(Setting("/device:GPU:0", "gpu")).bounds == BOUNDS["gpu"]
    assert Setting(arithmetic="bfloat16").plan.precision == "bfloat16"
    assert Setting("/device:GPU:0", "tf32").plan.precision == "float32"


def test_a_device_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(FIXTURES / "caffe"), "--device", "GPU:0", "--only", "conv_k3"])
    assert ended.value.code == 2
    assert "devices=gpu: TensorFlow sees no GPU in this process, 1 needed (" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--device", "TPU:0"])
    assert "'TPU:0' names no device; allowed: CPU:0, GPU:0, GPU:1, ..." in capsys.readouterr().err
