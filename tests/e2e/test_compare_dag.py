"""The DAG deepspark_compare, as Airflow runs it: two trials, one of which cannot train; others that are simulated."""

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
    done = airflow.trigger("deepspark_compare", conf)
    done.wait()
    tasks = airflow.api().call("GET", f"{done.path}/taskInstances")["task_instances"]
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
    plan = read_plan(done.folder)
    assert plan is not None
    assert [trial.name for trial in plan.trials] == ["easgd", "lbfgs"]
    table = json.loads((done.folder / "evaluation" / "comparison.json").read_text())
    good, bad = table["rows"]
    assert good["accuracy"] > 0.7
    assert good["exchanges"] > 0
    # Each exchange pushes and pulls every parameter, 4 bytes each.
    assert good["moved_bytes"] == good["exchanges"] * 2 * 4 * N_PARAMS
    assert 0.0 < good["seconds_to_target"] <= good["seconds"]
    assert table["target_accuracy"] == good["last_test_accuracy"] > 0.7
    assert (bad["status"], bad["accuracy"]) == ("failed", None)
    assert "raise max_iter or lower comm_period" in bad["reason"]
    page = (done.folder / "evaluation" / "report.html").read_text()
    assert "raise max_iter or lower comm_period" in page
    assert "<polyline" in page


def test_simulated_trials_end_in_the_simulations_page(airflow: AirflowInstance, example: SmallExample) -> None:
    conf = example.conf(
        simulate=True, strategies=["easgd"], workers="1, 2", step_ms=20.0, overrides="max_iter: 60 test_interval: 20"
    )
    done = airflow.trigger("deepspark_compare", conf)
    done.wait()
    tasks = airflow.api().call("GET", f"{done.path}/taskInstances")["task_instances"]
    assert {task["task_id"]: task["state"] for task in tasks} == {
        "check": "success",
        "ingest": "success",
        "train": "skipped",
        "evaluate": "skipped",
        "compare": "skipped",
        "simulate": "success",
    }
    report = json.loads((done.folder / "simulation" / "simulation.json").read_text())
    assert [(group["strategy"], group["workers"]) for group in report["groups"]] == [("single_worker", 1), ("easgd", 2)]
    assert all(group["accuracy"] > 0.5 for group in report["groups"])
    page = (done.folder / "evaluation" / "report.html").read_text()
    assert "<polyline" in page
    assert not list(done.folder.parent.glob(f"{done.folder.name}__trial_*"))
