"""The DAG deepspark_compare in Airflow: two trials, of them one untrainable, and simulated trials."""

from __future__ import annotations

import json

import pytest

from deepspark_ops.trials.plan import read_plan
from tests.e2e.airflow_instance import AirflowInstance
from tests.e2e.small_example import SmallExample

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.tf,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(1800),
]

N_PARAMS = 64 * 32 + 32 + 32 * 10 + 10


def test_trials_are_trained_and_end_in_one_table_though_one_failed(
    airflow: AirflowInstance, example: SmallExample
) -> None:
    # lbfgs measures 2 x 60 minibatches at a time; 100 are too few for its first line search.
    conf = example.conf(strategies=["easgd", "lbfgs"], comm_period="60", overrides="max_iter: 100", devices="cpu")
    run = airflow.trigger("deepspark_compare", conf)
    run.wait()
    tasks = airflow.api().call("GET", f"{run.path}/taskInstances")["task_instances"]
    states = {(task["task_id"], task["rendered_map_index"]): task["state"] for task in tasks}
    assert states == {
        ("check", None): "success",
        ("ingest", None): "success",
        ("train", "easgd"): "success",
        ("train", "lbfgs"): "failed",
        ("evaluate", "easgd"): "success",
        ("evaluate", "lbfgs"): "failed",
        ("compare", None): "success",
        ("simulate", None): "skipped",
    }
    plan = read_plan(run.folder)
    assert plan is not None
    assert [trial.name for trial in plan.trials] == ["easgd", "lbfgs"]
    table = json.loads((run.folder / "evaluation" / "comparison.json").read_text())
    good, bad = table["rows"]
    assert good["accuracy"] > 0.7
    assert good["exchanges"] > 0
    # Each exchange pushes and pulls every parameter, 4 bytes each.
    assert good["moved_bytes"] == good["exchanges"] * 2 * 4 * N_PARAMS
    assert 0.0 < good["seconds_to_target"] <= good["seconds"]
    assert table["target_accuracy"] == good["last_test_accuracy"] > 0.7
    assert (bad["status"], bad["accuracy"]) == ("failed", None)
    assert "raise max_iter or lower comm_period" in bad["reason"]
    page = (run.folder / "evaluation" / "report.html").read_text()
    assert "raise max_iter or lower comm_period" in page
    assert "<polyline" in page


def test_simulated_trials_end_in_the_simulations_page(airflow: AirflowInstance, example: SmallExample) -> None:
    conf = example.conf(
        simulate=True, strategies=["easgd"], workers="1, 2", step_ms=20.0, overrides="max_iter: 60 test_interval: 20"
    )
    run = airflow.trigger("deepspark_compare", conf)
    run.wait()
    tasks = airflow.api().call("GET", f"{run.path}/taskInstances")["task_instances"]
    assert {task["task_id"]: task["state"] for task in tasks} == {
        "check": "success",
        "ingest": "success",
        "train": "skipped",
        "evaluate": "skipped",
        "compare": "skipped",
        "simulate": "success",
    }
    report = json.loads((run.folder / "simulation" / "simulation.json").read_text())
    assert [(group["strategy"], group["workers"]) for group in report["groups"]] == [("single_worker", 1), ("easgd", 2)]
    assert all(group["accuracy"] > 0.5 for group in report["groups"])
    page = (run.folder / "evaluation" / "report.html").read_text()
    assert "<polyline" in page
    assert not list(run.folder.parent.glob(f"{run.folder.name}__trial_*"))


def test_a_search_chooses_each_trial_in_turn_and_stops_the_hopeless(
    airflow: AirflowInstance, example: SmallExample
) -> None:
    conf = example.conf(
        search="optuna",
        n_trials=3,
        base_lrs="0.00001..0.1",
        early_stop="halving",
        n_workers=1,
        overrides="max_iter: 360 test_interval: 20 snapshot: 0",
        devices="cpu",
    )
    run = airflow.trigger("deepspark_compare", conf)
    run.wait()
    plan = read_plan(run.folder)
    assert plan is not None
    rates = [float(trial.values["base_lr"]) for trial in plan.trials]
    assert len(set(rates)) == 3
    tasks = airflow.api().call("GET", f"{run.path}/taskInstances")["task_instances"]
    trained = {task["rendered_map_index"]: task["state"] for task in tasks if task["task_id"] == "train"}
    assert trained == {trial.name: "success" for trial in plan.trials}
    rows = json.loads((run.folder / "evaluation" / "comparison.json").read_text())["rows"]
    assert {row["status"] for row in rows} == {"finished"}
    first, *later = rows
    assert first["early_stop"] == ""  # nothing to compare it with
    for row in later:
        # A trial is stopped or is at least as good as the trials before it, at the same clock.
        assert row["early_stop"] or row["last_test_accuracy"] >= 0.5
        assert (row["stopped_at"] is None) == (row["early_stop"] == "")
    assert any(row["stopped_at"] is not None and row["stopped_at"] < 360 for row in later)
