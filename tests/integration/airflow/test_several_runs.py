"""Pages of a DAG run with several trainings: tabs of the DAG run and of its tasks, and rows of the list."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deepspark_ops.operators.pages import plugin
from deepspark_ops.operators.tasks.run_link import link_run
from deepspark_ops.operators.tasks.run_plan import Places, safe_run_id
from deepspark_ops.run_index.listing import KnownRun
from deepspark_ops.run_view.stage_status import StatusFile
from tests.integration.airflow import page_runs
from tests.integration.airflow.page_runs import pages_client, write_run

pytestmark = pytest.mark.airflow

DAG_RUN = "manual__2026-01-31T04:05:06.789+00:00"
URL = f"/runs/deepspark_train/{urllib.parse.quote(DAG_RUN, safe='')}"


@pytest.fixture
def split_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The pages' client with a DAG run of two trainings: a finished training in a group, and a running training."""
    run = KnownRun("deepspark_train", DAG_RUN, "running", 900.0, 900.0, None, "manual", "ada")
    monkeypatch.setattr(page_runs, "RUNS", [*page_runs.RUNS, run])
    with pages_client(tmp_path) as client:
        for task, score, net in (("a.train", "a.evaluate", "NetA"), ("fit", "", "NetB")):
            folder = write_run(tmp_path, "deepspark_train", safe_run_id(f"{DAG_RUN}__{task}"), net=net)
            status = StatusFile(folder, "train", task=task)
            if score:
                status.end("finished")
                StatusFile(folder, "evaluate", task=score).end("finished")
        yield client


def test_the_tab_of_a_task_leads_to_the_tasks_run(split_client: Any) -> None:
    tab = next(view for view in plugin.DeepSparkPlugin.external_views if view["destination"] == "task_instance")
    query = tab["href"].partition("?")[2]
    for task, net in (("a.train", "NetA"), ("a.evaluate", "NetA"), ("fit", "NetB")):
        address = query.replace("{TASK_ID}", task).replace("{MAP_INDEX}", "-1")
        answer = split_client.get(f"{URL}/training?{address}&format=json").json()
        assert answer["net"] == net, task
    elsewhere = split_client.get(f"{URL}/training?task_id=mail&map_index=-1", follow_redirects=False)
    assert elsewhere.status_code == 303


@pytest.mark.parametrize("page", ["training", "report"])
def test_the_tabs_of_the_dag_run_lead_to_the_list_of_its_runs(split_client: Any, page: str) -> None:
    sent = split_client.get(f"{URL}/{page}", follow_redirects=False)
    address = sent.headers["location"].removeprefix("/deepspark")
    assert (sent.status_code, address.partition("?")[0]) == (303, "/runs")
    answer = split_client.get(f"{address}&format=json").json()
    rows = {row["run"]: (row["net"], row["state"], row["dag_run"]) for row in answer["runs"]}
    assert rows == {
        f"{DAG_RUN}__a.train": ("NetA", "finished", DAG_RUN),
        f"{DAG_RUN}__fit": ("NetB", "running", DAG_RUN),
    }
    text = split_client.get(address).text
    assert urllib.parse.quote(f"{DAG_RUN}__a.train", safe="") in text


@pytest.mark.parametrize("task", ["", "mail"])
def test_a_dag_run_with_a_single_training_beside_other_runs_leads_to_the_training(split_client: Any, task: str) -> None:
    for first_task, stages in (("ingest", ("ingest", "train")), ("predict", ("predict",))):
        folder = write_run(split_client.home, "deepspark_train", f"run-d__{first_task}", net=first_task)
        for stage in stages:
            StatusFile(folder, stage, task=stage).end("finished")
    address = "/runs/deepspark_train/run-d/training?format=json&task_id="
    assert split_client.get(address + task).json()["net"] == "ingest"
    assert split_client.get(address + "predict").json()["net"] == "predict"


def test_the_tab_of_a_mapped_task_beside_a_training_in_the_folder_of_the_dag_run_leads_to_the_tasks_run(
    split_client: Any,
) -> None:
    StatusFile(write_run(split_client.home, "deepspark_train", "run-d", net="trained"), "train", task="train")
    for index in (0, 1):
        folder = write_run(split_client.home, "deepspark_train", f"run-d__predict_{index}", net=f"predicted {index}")
        StatusFile(folder, "predict", task="predict", map_index=index)
    address = "/runs/deepspark_train/run-d/training?format=json&task_id="
    for query, net in (("predict&map_index=1", "predicted 1"), ("train&map_index=-1", "trained"), ("", "trained"),
                       ("mail&map_index=3", "trained")):  # fmt: skip
        assert split_client.get(address + query).json()["net"] == net, query


def test_the_list_has_a_training_in_the_folder_of_the_dag_run_beside_other_runs(split_client: Any) -> None:
    names = ("run-d", "run-d__ingest", "run-d__predict")
    for name in names:
        write_run(split_client.home, "deepspark_train", name)
    rows = split_client.get("/runs?format=json&work=all").json()["runs"]
    assert {row["run"] for row in rows if row["run"].startswith("run-d")} == set(names)


@pytest.mark.parametrize(("status", "is_listed"), [("finished", True), ("failed", False)])
def test_a_failed_dag_run_is_in_the_list_unless_one_of_its_runs_shows_the_failure(
    split_client: Any, monkeypatch: pytest.MonkeyPatch, status: Any, is_listed: bool
) -> None:
    run = KnownRun("deepspark_train", "run-f", "failed", 900.0, 900.0, 950.0, "manual", failed_task="mail")
    monkeypatch.setattr(page_runs, "RUNS", [*page_runs.RUNS, run])
    for first_task in ("ingest", "fit"):
        folder = split_client.home / "runs/deepspark_train" / f"run-f__{first_task}"
        StatusFile(folder, first_task, task=first_task).end(status if first_task == "fit" else "finished")
    rows = split_client.get("/runs?format=json&work=all").json()["runs"]
    assert {row["run"] for row in rows if row["run"].startswith("run-f__")} == {"run-f__ingest", "run-f__fit"}
    errors = [row["error"] for row in rows if row["run"] == "run-f"]
    assert errors == (["task mail failed; the log of the task has the reason"] if is_listed else [])


def test_a_dag_run_with_a_single_run_in_a_folder_of_its_first_task_leads_to_the_run(split_client: Any) -> None:
    write_run(split_client.home, "deepspark_train", "run-d__predict", net="NetC")
    assert split_client.get("/runs/deepspark_train/run-d/training?format=json").json()["net"] == "NetC"
    assert split_client.get("/runs/deepspark_train/run-a/training?format=json").json()["net"] == "LeNet"


def test_a_training_in_another_folder_has_a_page_and_a_row_if_the_folder_is_allowed(split_client: Any) -> None:
    home = split_client.home
    places = Places(home, home, allowed_roots=(home / "allowed",))
    for parent, n_links in (("allowed", 1), ("elsewhere", 0)):
        folder = write_run(home / parent, "mine", "r", net=f"Net {parent}")
        StatusFile(folder, "train", task="fit").end("finished")
        StatusFile(folder, "evaluate", task="score").end("finished")
        reason = link_run(places, "deepspark_train", "run-e", "fit", folder)
        assert reason == link_run(places, "deepspark_train", "run-e", "again", folder)
        assert (reason is None) == bool(n_links), reason
        if not n_links:
            assert f"{folder}: no page of Airflow shows this run, since the folder lies outside of" in str(reason)
    folder.parent.mkdir(exist_ok=True)
    (home / "runs/deepspark_train/run-e__by_hand").symlink_to(folder)
    for query in ("", "&task_id=fit&map_index=-1", "&task_id=score&map_index=-1"):
        answer = split_client.get(f"/runs/deepspark_train/run-e/training?format=json{query}").json()
        assert answer["net"] == "Net allowed", query
    rows = split_client.get("/runs?format=json&work=all").json()["runs"]
    assert [row["net"] for row in rows if row["run"].startswith("run-e__")] == [None, "Net allowed"]
