"""Retraining as Airflow's own scheduler starts it: by time, then by an updated dataset. The net has no classes."""

from __future__ import annotations

import html
import json
from typing import Any

import pytest

from deepspark_ops.local_airflow.api import AirflowFailed
from deepspark_ops.operators.pages.addresses import RUNS_URL, run_url
from tests.e2e.airflow_instance import AirflowInstance, DagRun
from tests.e2e.keep_airflow import RETRAINED_MODEL
from tests.e2e.small_example import SmallExample

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.tf, pytest.mark.slow, pytest.mark.timeout(1800)]

DAG = "deepspark_retrain"


def test_scheduled_runs_train_further_and_keep_the_better_model(airflow: AirflowInstance) -> None:
    # By time: unpausing runs the latest slot. Nothing is in production, so the model goes in unopposed.
    airflow.unpause(DAG)
    first = airflow.await_run(DAG, lambda run: run["run_type"] == "scheduled")
    approve(airflow, first)
    note = first.wait()["note"]
    states = first.task_states()
    assert states.pop("evaluate_production") == "skipped"
    assert set(states.values()) == {"success"}
    pointer = airflow.home / "models" / RETRAINED_MODEL / "production.json"
    production = json.loads(pointer.read_text())
    assert (production["version"], production["who"]) == ("v1", "user")
    assert note == production["reason"]
    assert note.endswith("; no model was in production; approved by user (looks right)")
    assert first.told()[-1] == ("promoted", f"model {RETRAINED_MODEL}: v1 is in production ({note})")
    version = pointer.parent / "versions" / production["version"]
    assert (version / "weights.caffemodel").is_file()
    bundle = json.loads((first.folder / "bundle" / "manifest.json").read_text())
    assert [(one["name"], one["task"]) for one in bundle["outputs"]] == [("again", "reconstruction")]
    (listed,) = (row for row in airflow.api().page(f"{RUNS_URL}?format=json")["runs"] if row["run"] == first.run_id)
    assert (listed["figure"]["name"], listed["accuracy"]) == ("mse", None)

    # By data: another order of the same samples is a changed dataset, which triggers a run that starts from production.
    example = SmallExample(airflow.base / "retrain")  # its files are there
    ingested = airflow.trigger("deepspark_train", example.conf(shuffle=False, overrides="max_iter: 40"))
    ingested.leave_out("train")  # ingest sends the event; test_train_dag.py has what follows
    ingested.wait()
    second = await_run_by_data(airflow)
    passed = second.wait_task("approve", "awaiting_input", "skipped") == "awaiting_input"
    if passed:
        second.answer("Reject", comment="not yet")
    note = second.wait()["note"]
    folder, states = second.folder, second.task_states()
    trained = json.loads((folder / "stages" / "train.json").read_text())
    assert trained["weights"] == [str(version / "weights.caffemodel")]
    decision = json.loads((folder / "decision.json").read_text())
    mine, theirs = (
        json.loads((folder / name / "metrics.json").read_text()) for name in ("evaluation", "evaluation_production")
    )
    assert mine["scored"]["dataset_digest"] == theirs["scored"]["dataset_digest"]
    comparison = decision["comparison"]
    assert [one["value"] for one in comparison["figures"]] == [mine["main"]["value"], theirs["main"]["value"]]
    assert comparison["gain"] == pytest.approx(theirs["loss"] - mine["loss"])
    assert comparison["n_samples"] == mine["n_samples"]
    assert note == decision["reason"]
    report = (folder / "evaluation" / "report.html").read_text()
    assert "Against production" in report
    assert html.escape(decision["reason"][1:]) in report
    assert note.startswith(
        "kept production: refused by admin (not yet); Mean squared error " if passed else "kept production: "
    )
    assert second.told()[-1] == ("kept", note)
    if passed:
        assert comparison["p_value"] <= 0.05
    assert states["promote"] == "skipped"
    assert json.loads(pointer.read_text()) == production


def approve(airflow: AirflowInstance, run: DagRun) -> None:
    """See a run wait for a person, without a worker and without its triggerer, and approve it as one who may."""
    run.wait_task("approve", "awaiting_input")
    task = airflow.api().call("GET", f"{run.path}/taskInstances/approve")
    assert task["triggerer_job"] is None
    asked = airflow.api().call("GET", f"{run.path}/taskInstances/approve/-1/hitlDetails")
    assert asked["subject"].startswith(f"Put a new version of {RETRAINED_MODEL} into production? Mean squared error ")
    assert "| Mean squared error | " in asked["body"]
    rows = airflow.api().page(f"{RUNS_URL}?format=json&state=waits+for+approval")["runs"]
    assert (run.run_id, "approve") in [(row["run"], row["asks"]) for row in rows]
    state = airflow.api().page(run_url(run.dag_id, run.run_id, "training?format=json"))["state"]
    assert (state["text"], state["asks"]) == ("waits for approval", "approve")
    ((event, reason),) = run.told()
    assert event == "approval"
    assert reason.startswith("waits for approval: Mean squared error ")
    with pytest.raises(AirflowFailed, match="403"):
        run.answer("Approve", user="viewer")
    run.answer("Approve", user="user", comment="looks right")


def await_run_by_data(airflow: AirflowInstance) -> DagRun:
    """Return the run that the updated dataset of this DAG's own source triggered.

    The datasets of other tests trigger runs, too; their first task finds them to be of another source and skips them.
    """

    def is_own(found: dict[str, Any]) -> bool:
        run = DagRun(airflow, DAG, str(found["dag_run_id"]))
        return found["run_type"] == "asset_triggered" and run.task_states().get("check") == "success"

    return airflow.await_run(DAG, is_own)
