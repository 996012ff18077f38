"""``deepspark doctor`` beside an Airflow that runs, with a real Spark job and TensorFlow."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.e2e.airflow_instance import AirflowInstance
from tests.e2e.keep_airflow import environment
from tests.paths import ROOT

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.tf,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(1800),
]


def test_what_runs_here_is_fit_for_a_run(airflow: AirflowInstance) -> None:
    variables = {name: value for name, value in environment(airflow.base).items() if name != "AIRFLOW_HOME"}
    command = [sys.executable, "-m", "deepspark_ops.command.cli", "doctor", "--json", "--connection", "spark_default"]
    completed = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False, timeout=900
    )
    checks = {check["name"]: check for check in json.loads(completed.stdout)["checks"]}
    assert [check for check in checks.values() if not check["ok"]] == [], completed.stderr
    assert completed.returncode == 0
    assert checks["airflow database"]["detail"] == "answers, and has Airflow's tables"
    assert checks["airflow DAGs"]["detail"].startswith(f"{ROOT / 'dags'}: deepspark_clean.py")
    assert checks["airflow plugin"]["remedy"] == ""
    assert "does not exist" in checks["connection spark_default"]["detail"]
    assert "reach the driver's address" in checks["exchange"]["detail"]
    assert checks["executors' Java"]["detail"].startswith("Java ")
    assert checks["clocks"]["remedy"] == ""
    assert not list(ROOT.glob(".deepspark-doctor-*"))
