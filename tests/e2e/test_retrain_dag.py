"""Retraining as Airflow's own scheduler runs it under ``deepspark ui``: by time, then by an updated dataset."""

from __future__ import annotations

import html
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deepspark_ops.local_airflow.api import Api, quoted
from deepspark_ops.local_airflow.descendants import descendants
from deepspark_ops.local_airflow.services import free_port, require_free
from tests.e2e.conftest import Sandbox

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.tf, pytest.mark.slow, pytest.mark.timeout(1200)]

RUN_TIMEOUT_S = 420.0


@pytest.fixture
def api(sandbox: Sandbox) -> Iterator[Api]:
    """Airflow as ``deepspark ui`` starts it; ends it by SIGTERM and sees that nothing is left."""
    defaults = sandbox.folder / "retrain.json"
    defaults.write_text(json.dumps(sandbox.conf(overrides="max_iter: 60 base_lr: 0.01", model="small")))
    port = free_port()
    environment = {**sandbox.environment(), "DEEPSPARK_RETRAIN_DEFAULTS": str(defaults)}
    process = subprocess.Popen(
        [sys.executable, "-m", "deepspark_ops.command.cli", "ui", "--port", str(port)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        output = ""
        for line in process.stdout:
            output += line
            if "Ctrl-C ends it" in line:
                break
        assert f"http://127.0.0.1:{port}" in output, output
        yield Api(port, sandbox.airflow_home / "passwords.json")
        below = descendants(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert [pid for pid in below if Path(f"/proc/{pid}").exists() and not _is_zombie(pid)] == []
        require_free(port)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def wait_for_run(api: Api, dag_id: str, run_type: str) -> dict[str, Any]:
    """Return the DAG's run of that type when it has ended."""
    deadline = time.monotonic() + RUN_TIMEOUT_S
    while time.monotonic() < deadline:
        runs = api.call("GET", f"/dags/{dag_id}/dagRuns")["dag_runs"]
        for run in runs:
            if run["run_type"] == run_type and run["state"] in {"success", "failed"}:
                return dict(run)
        time.sleep(1)
    pytest.fail(f"no {run_type} run of {dag_id} ended in {RUN_TIMEOUT_S:.0f} s")


def task_states(api: Api, run: dict[str, Any]) -> dict[str, str]:
    path = f"/dags/{run['dag_id']}/dagRuns/{quoted(run['dag_run_id'])}/taskInstances"
    return {task["task_id"]: task["state"] for task in api.call("GET", path)["task_instances"]}


def wait_for_dag(api: Api, dag_id: str) -> None:
    deadline = time.monotonic() + 90
    while dag_id not in {dag["dag_id"] for dag in api.call("GET", "/dags")["dags"]}:
        assert time.monotonic() < deadline, api.call("GET", "/importErrors")
        time.sleep(1)


def test_scheduled_runs_train_further_and_keep_the_better_model(api: Api, sandbox: Sandbox) -> None:
    pointer = sandbox.home / "models" / "small" / "production.json"
    wait_for_dag(api, "deepspark_retrain")

    # By time: unpausing runs the latest slot. Nothing is in production, so the model goes in unopposed.
    api.call("PATCH", "/dags/deepspark_retrain", {"is_paused": False})
    first = wait_for_run(api, "deepspark_retrain", "scheduled")
    states = task_states(api, first)
    assert first["state"] == "success", states
    assert states.pop("evaluate_production") == "skipped"
    assert set(states.values()) == {"success"}
    production = json.loads(pointer.read_text())
    assert (production["version"], production["who"]) == ("v1", "scheduled")
    assert first["note"] == production["reason"]
    version = sandbox.home / "models" / "small" / "versions" / production["version"]
    assert (version / "weights.caffemodel").is_file()

    # The task log, as the UI reads it, holds the Spark workers' lines with their own levels.
    path = f"/dags/deepspark_retrain/dagRuns/{quoted(first['dag_run_id'])}/taskInstances/train/logs/1"
    entries = api.call("GET", path)["content"]
    lines = [entry for entry in entries if " loss clock=" in str(entry.get("event"))]
    assert lines
    assert {entry["level"] for entry in lines} == {"info"}

    # By data: another order of the same samples is a changed dataset, which triggers a run that starts from production.
    conf = sandbox.conf(shuffle=False, overrides="max_iter: 40")
    api.call("PATCH", "/dags/deepspark_train", {"is_paused": False})
    api.call("POST", "/dags/deepspark_train/dagRuns", {"logical_date": None, "conf": conf})
    assert wait_for_run(api, "deepspark_train", "manual")["state"] == "success"
    second = wait_for_run(api, "deepspark_retrain", "asset_triggered")
    states = task_states(api, second)
    assert second["state"] == "success", states
    runs = sandbox.home / "runs" / "deepspark_retrain"
    (folder,) = [run for run in runs.iterdir() if run.name.startswith("asset_triggered__")]
    trained = json.loads((folder / "stages" / "train.json").read_text())
    assert trained["weights"] == [str(version / "weights.caffemodel")]
    decision = json.loads((folder / "decision.json").read_text())
    mine, theirs = (
        json.loads((folder / name / "metrics.json").read_text()) for name in ("evaluation", "evaluation_production")
    )
    assert mine["scored"]["dataset_digest"] == theirs["scored"]["dataset_digest"]
    assert (decision["candidate"], decision["production"]) == (mine["top1"], theirs["top1"])
    comparison = decision["comparison"]
    assert comparison["gain"] == pytest.approx(mine["top1"] - theirs["top1"])
    assert comparison["n_samples"] == mine["n_samples"]
    promotes = decision["promotes"]
    assert second["note"] == decision["reason"]
    report = (folder / "evaluation" / "report.html").read_text()
    assert "Against production" in report
    assert html.escape(decision["reason"][1:]) in report
    assert decision["reason"].startswith("promoted: " if promotes else "kept production: ")
    if promotes:
        assert comparison["p_value"] <= 0.05
    assert states["promote"] == ("success" if promotes else "skipped")
    assert (json.loads(pointer.read_text())["version"] != production["version"]) is promotes
