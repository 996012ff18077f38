"""Retraining as Airflow's own scheduler starts it: by time, then by an updated dataset. The net has no classes."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import pytest

from deepspark_ops.local_airflow.api import AirflowFailed
from deepspark_ops.operators.pages.addresses import RUNS_URL, run_url
from tests.e2e.airflow_instance import AirflowInstance, DagRun
from tests.e2e.keep_airflow import RETRAINED_MODEL
from tests.e2e.small_example import SmallExample

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.tf, pytest.mark.slow, pytest.mark.timeout(1800)]

DAG = "deepspark_retrain"
BY_DATA = "asset_triggered"
LOST = "/nowhere/lost.txt"
"""Source of an event that comes while a run of the DAG is active and another event waits."""


def first_run(airflow: AirflowInstance) -> DagRun:
    """Return the run that Airflow started by time, approved; nothing was in production."""

    def make() -> str:
        airflow.unpause(DAG)  # which runs the latest slot
        run = airflow.await_run(DAG, lambda run: run["run_type"] == "scheduled")
        run.wait_task("approve", "awaiting_input")
        # The run's ingestion has sent an event, which makes the next run; Airflow loses a second event.
        airflow.send_event("deepspark_dataset", {"source": LOST})
        approve(airflow, run)
        run.wait()
        return run.run_id

    return DagRun(airflow, DAG, airflow.once("retrained_by_time", make))


def production_of(airflow: AirflowInstance) -> dict[str, Any]:
    pointer: dict[str, Any] = json.loads((model_folder(airflow) / "production.json").read_text())
    return pointer


def model_folder(airflow: AirflowInstance) -> Path:
    return airflow.home / "models" / RETRAINED_MODEL


def test_a_run_by_time_is_approved_and_put_into_production(airflow: AirflowInstance) -> None:
    first = first_run(airflow)
    note = first.read()["note"]
    assert start_of(first).startswith("started by the timetable, for ")
    states = first.task_states()
    assert states.pop("evaluate_production") == "skipped"
    assert set(states.values()) == {"success"}
    production = production_of(airflow)
    assert (production["version"], production["who"]) == ("v1", "user")
    assert note == production["reason"]
    assert note.endswith("; no model was in production; approved by user (looks right)")
    assert first.notices()[-1] == ("promoted", f"model {RETRAINED_MODEL}: v1 is in production ({note})")
    assert (model_folder(airflow) / "versions" / "v1" / "weights.caffemodel").is_file()
    bundle = json.loads((first.folder / "bundle" / "manifest.json").read_text())
    assert [(output["name"], output["task"]) for output in bundle["outputs"]] == [("again", "reconstruction")]
    # The only run here with the formats of an untouched form.
    read = {read_file["file"] for read_file in bundle["check"]["outside"]}
    assert read == {"weights.caffemodel", "model.keras", "model.onnx", "model.tflite"}
    (listed,) = (row for row in airflow.api().page(f"{RUNS_URL}?format=json")["runs"] if row["run"] == first.run_id)
    assert (listed["figure"]["name"], listed["accuracy"]) == ("mse", None)


@pytest.mark.long
def test_the_next_run_by_data_reads_an_event_that_airflow_did_not_give_it(airflow: AirflowInstance) -> None:
    first = first_run(airflow)
    source = SmallExample(airflow.base / "retrain").conf()["source"]
    airflow.await_run(DAG, lambda run: run["run_type"] == BY_DATA)
    by_data = min(runs_by_data(airflow), key=lambda run: run.read()["run_after"])
    assert by_data.wait()["note"].startswith(f"nothing was trained: the data of {source} are those of v1, of run ")
    log = by_data.log_text("check")
    assert f"event of the dataset: {DAG}, run {first.run_id}, ingested {source} (" in log
    assert LOST not in event_sources(by_data), "if Airflow gives it this event, too, the task need not read it"
    assert f"event of the dataset: {LOST}" in log


@pytest.mark.long
def test_data_of_others_and_data_that_were_judged_start_no_training(
    airflow: AirflowInstance, example: SmallExample
) -> None:
    first = first_run(airflow)
    production = production_of(airflow)
    other_example = SmallExample(airflow.base / "retrain")

    # Another order of the same samples is another dataset of the same source. Two runs of one dataset end their
    # ingestion together, and Airflow hands over their events together with those of other data.
    confs = (other_example.conf(shuffle=False),) * 2 + (example.conf(),)
    ingesting = [airflow.trigger("deepspark_train", conf) for conf in confs]
    for run in ingesting:
        run.leave_out("train")
    for run in ingesting:
        run.wait()
        assert run.task_states()["ingest"] == "success"
    source = other_example.conf()["source"]
    skipped = await_run_by_data(airflow, *ingesting[:2], source=source)
    note = skipped.wait()["note"]
    assert note == (
        f"nothing was trained: the data of {source} are those of v1, of run {first.folder.name}; they have not changed"
    )
    for run in runs_by_data(airflow):
        run.wait()
        if run.run_id == skipped.run_id or f" ingested {source} (" not in run.log_text("check"):
            assert set(run.task_states().values()) == {"skipped"}
            assert start_of(run) in run.log_text("check")
    assert production_of(airflow) == production


@pytest.mark.long
def test_a_run_by_an_updated_dataset_starts_from_production_and_keeps_what_is_better(airflow: AirflowInstance) -> None:
    first_run(airflow)
    production = production_of(airflow)
    version = model_folder(airflow) / "versions" / production["version"]
    example = SmallExample(airflow.base / "retrain")  # its files are there
    example.change_a_pixel()
    ingested = airflow.trigger("deepspark_train", example.conf(overrides="max_iter: 40"))
    ingested.leave_out("train")  # ingest sends the event; test_train_dag.py has what follows
    ingested.wait()
    second = await_run_by_data(airflow, ingested, source=example.conf()["source"], state="success")
    passed = second.wait_task("approve", "awaiting_input", "skipped") == "awaiting_input"
    if passed:
        second.answer("Reject", comment="not yet")
    note = second.wait()["note"]
    folder, states = second.folder, second.task_states()
    trained = json.loads((folder / "stages" / "train.json").read_text())
    assert trained["weights"] == [str(version / "weights.caffemodel")]
    decision = json.loads((folder / "decision.json").read_text())
    mine, production_metrics = (
        json.loads((folder / name / "metrics.json").read_text()) for name in ("evaluation", "evaluation_production")
    )
    assert mine["scored"]["dataset_digest"] == production_metrics["scored"]["dataset_digest"]
    comparison = decision["comparison"]
    assert [figure["value"] for figure in comparison["figures"]] == [
        mine["main"]["value"],
        production_metrics["main"]["value"],
    ]
    assert comparison["gain"] == pytest.approx(production_metrics["loss"] - mine["loss"])
    assert comparison["n_samples"] == mine["n_samples"]
    assert note == decision["reason"]
    report = (folder / "evaluation" / "report.html").read_text()
    assert "Against production" in report
    assert html.escape(decision["reason"][1:]) in report
    assert note.startswith(
        "kept production: refused by admin (not yet); Mean squared error " if passed else "kept production: "
    )
    assert second.notices()[-1] == ("kept", note)
    if passed:
        assert comparison["p_value"] <= 0.05
    assert states["promote"] == "skipped"
    assert production_of(airflow) == production


def approve(airflow: AirflowInstance, run: DagRun) -> None:
    """See a run wait for a person, without a worker and a triggerer, and approve the run as a permitted user."""
    run.wait_task("approve", "awaiting_input")
    task = airflow.api().call("GET", f"{run.path}/taskInstances/approve")
    assert task["triggerer_job"] is None
    details = airflow.api().call("GET", f"{run.path}/taskInstances/approve/-1/hitlDetails")
    assert details["subject"].startswith(f"Put a new version of {RETRAINED_MODEL} into production? Mean squared error ")
    assert "| Mean squared error | " in details["body"]
    rows = airflow.api().page(f"{RUNS_URL}?format=json&state=waits+for+approval")["runs"]
    assert (run.run_id, "approve") in [(row["run"], row["asks"]) for row in rows]
    state = airflow.api().page(run_url(run.dag_id, run.run_id, "training?format=json"))["state"]
    assert (state["text"], state["asks"]) == ("waits for approval", "approve")
    ((event, reason),) = run.notices()
    assert event == "approval"
    assert reason.startswith("waits for approval: Mean squared error ")
    with pytest.raises(AirflowFailed, match="403"):
        run.answer("Approve", user="viewer")
    run.answer("Approve", user="user", comment="looks right")


def start_of(run: DagRun) -> str:
    """Return what the run's page says of its start."""
    return str(run.airflow.api().page(run_url(run.dag_id, run.run_id, "training?format=json"))["started"])


def await_run_by_data(airflow: AirflowInstance, *by: DagRun, source: str, state: str = "skipped") -> DagRun:
    """Return the run that heard of the ingestion of ``source`` by one of the runs and whose first task ended in
    ``state``.

    Of several runs that ingest one dataset, only the first to end announces the dataset. Datasets of other tests also
    trigger runs; the first task of such a run finds another source and skips the run.
    """
    lines = [f"event of the dataset: {run.dag_id}, run {run.run_id}, ingested {source} (" for run in by]

    def is_wanted(row: dict[str, Any]) -> bool:
        run = DagRun(airflow, DAG, str(row["dag_run_id"]))
        is_by_data = row["run_type"] == BY_DATA and run.task_states().get("check") == state
        return is_by_data and any(line in run.log_text("check") for line in lines)

    return airflow.await_run(DAG, is_wanted)


def runs_by_data(airflow: AirflowInstance) -> list[DagRun]:
    """Return the runs that events of datasets have started so far."""
    runs = airflow.api().call("GET", f"/dags/{DAG}/dagRuns")["dag_runs"]
    return [DagRun(airflow, DAG, str(run["dag_run_id"])) for run in runs if run["run_type"] == BY_DATA]


def event_sources(run: DagRun) -> set[str]:
    """Return the sources whose datasets' events started a run."""
    events = run.airflow.api().call("GET", f"{run.path}/upstreamAssetEvents")["asset_events"]
    return {event["extra"]["source"] for event in events}
