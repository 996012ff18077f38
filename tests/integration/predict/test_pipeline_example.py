"""The example of a Spark ML pipeline, run as users do; three Spark applications start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deepspark_ops.processes.spark_submit import job_variables
from tests.paths import ROOT

pytestmark = [pytest.mark.long, pytest.mark.tf, pytest.mark.spark]


def test_the_pipeline_example_trains_and_answers_the_same_after_loading(tmp_path: Path) -> None:
    command = [sys.executable, "examples/spark_ml_pipeline.py", str(tmp_path / "runs"), str(tmp_path / "pipeline")]
    environment = {**os.environ, **job_variables(os.environ), "PYTHONPATH": str(ROOT)}
    completed = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=570, check=False
    )
    assert completed.returncode == 0, completed.stderr[-4000:]
    accuracy_lines = [line for line in completed.stdout.splitlines() if line.startswith("accuracy=")]
    trained_accuracy, loaded_accuracy = (float(line.split("=")[1].split()[0]) for line in accuracy_lines)
    assert trained_accuracy > 0.85
    assert trained_accuracy == loaded_accuracy
    assert "|probability" in completed.stdout.replace(" ", "")
