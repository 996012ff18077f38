"""Retraining as Airflow's own scheduler starts it: by time, then by an updated dataset."""

from __future__ import annotations

import html
import json
from typing import Any

import pytest

from tests.e2e.airflow_instance import AirflowInstance, DagRun
from tests.e2e.keep_airflow import RETRAINED_MODEL
from tests.e2e.small_example import SmallExample

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.tf, pytest.mark.slow, pytest.mark.timeout(1800)]

DAG = "deepspark_retrain"


def test_scheduled_runs_train_further_and_keep_the_better_model(airflow: AirflowInstance) -> None:
    # By time: unpausing runs the latest slot. Nothing is in production, so the model goes in unopposed.
    airflow.unpause(DAG)
    first = airflow.await_run(DAG, lambda run: run["run_type"] == "scheduled")
    note = first.wait()["note"]
    states = first.task_states()
    assert states.pop("evaluate_production") == "skipped"
    assert set(states.values()) == {"success"}
    pointer = airflow.home / "models" / RETRAINED_MODEL / "production.json"
    production = json.loads(pointer.read_text())
    assert (production["version"], production["who"]) == ("v1", "scheduled")
    assert note == production["reason"]
    version = pointer.parent / "versions" / production["version"]
    assert (version / "weights.caffemodel").is_file()

    # By data: another order of the same samples is a changed dataset, which triggers a run that starts from production.
    example = SmallExample(airflow.base / "retrain")
    ingested = airflow.trigger("deepspark_train", example.conf(shuffle=False, overrides="max_iter: 40"))
    ingested.wait_task("ingest", "success")
    ingested.stop()  # what follows sends no event; test_train_dag.py has it
    second = await_run_by_data(airflow)
    note = second.wait()["note"]
    folder, states = second.folder, second.task_states()
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
    assert note == decision["reason"]
    report = (folder / "evaluation" / "report.html").read_text()
    assert "Against production" in report
    assert html.escape(decision["reason"][1:]) in report
    assert decision["reason"].startswith("promoted: " if promotes else "kept production: ")
    if promotes:
        assert comparison["p_value"] <= 0.05
    assert states["promote"] == ("success" if promotes else "skipped")
    assert (json.loads(pointer.read_text())["version"] != production["version"]) is promotes


def await_run_by_data(airflow: AirflowInstance) -> DagRun:
    """Return the run that the updated dataset of this DAG's own source triggered.

    The datasets of other tests trigger runs, too; their first task finds them to be of another source and skips them.
    """

    def is_own(found: dict[str, Any]) -> bool:
        run = DagRun(airflow, DAG, str(found["dag_run_id"]))
        return found["run_type"] == "asset_triggered" and run.task_states().get("check") == "success"

    return airflow.await_run(DAG, is_own)
