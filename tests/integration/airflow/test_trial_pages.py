"""Trials on the pages: a comparison lists its trials, each trial has a page, and the list of runs has all trials."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest

from deepspark_ops.config.compare import CompareConfig
from deepspark_ops.operators.compare import DeepSparkCompareOperator, DeepSparkTrainTrialOperator
from deepspark_ops.operators.pages import plugin
from deepspark_ops.operators.pages.addresses import mapped_run_id
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.run_index.listing import KnownRun
from deepspark_ops.run_view.stage_status import StatusFile
from deepspark_ops.run_view.state import AirflowRun, TaskState
from deepspark_ops.trials.plan import make_plan, trial_run_id, write_plan
from tests.integration.airflow.asking_person import asking_client
from tests.unit.deepspark_ops.run_view.run_events import RUN, lines, stage

pytestmark = pytest.mark.airflow

DAG = "deepspark_compare"
RUN_ID = "manual__2026-01-31T04:05:06.789+00:00"
URL = f"/runs/{DAG}/{RUN_ID.replace('+', '%2B')}"
LISTED_RUN = KnownRun(DAG, RUN_ID, "running", 300.0, 300.0, None, "manual", "ada")


def tasks(train: str, evaluate: str | None = None) -> dict[str, TaskState]:
    ended = {"check": TaskState("success", 990.0, 995.0), "ingest": TaskState("success", 995.0, 999.0)}
    return {**ended, "train": TaskState(train, 999.0), "evaluate": TaskState(evaluate), "compare": TaskState(None)}


@pytest.fixture
def airflow() -> dict[str, AirflowRun]:
    """Airflow's answers about runs; a test changes them."""
    first = AirflowRun("running", tasks("success"))
    return {RUN_ID: AirflowRun("running", tasks("running")), trial_run_id(RUN_ID, 1): first}


@pytest.fixture
def client(tmp_path: Path, airflow: dict[str, AirflowRun]) -> Iterator[Any]:
    locations = Places(tmp_path, tmp_path)
    config = CompareConfig(strategies=("easgd", "<b>sync", "downpour"))
    plan = make_plan(config, DAG, RUN_ID, lambda run: locations.run_folder(DAG, run))
    write_plan(locations.run_folder(DAG, RUN_ID), plan)
    first, second, _ = (Path(trial.run_dir) for trial in plan.trials)
    (first / "events.jsonl").write_bytes(lines([*RUN, stage("finished", 1000, 1100.0, images_per_s=812.5)]))
    StatusFile(first, "train").end("finished")
    (second / "events.jsonl").write_bytes(lines(RUN[:10]))
    StatusFile(second, "train")
    with asking_client(
        tmp_path,
        dags={DAG},
        listed=[LISTED_RUN],
        clock=time.time,
        airflow=lambda dag, run: airflow.get(run),
        readable=lambda: {DAG},
    ) as test_client:
        test_client.folders = [Path(trial.run_dir) for trial in plan.trials]
        yield test_client


def test_page_of_a_comparison_lists_its_trials_and_leads_to_theirs(client: Any) -> None:
    answer = client.get(f"{URL}/training?format=json").json()
    assert answer["state"]["name"] == "running"
    assert answer["state"]["text"] == "1 of 3 trials are trained, 0 scored; now: <b>sync"
    rows = [(row["name"], row["state"], row["clock"], row["max_iter"], row["images_per_s"]) for row in answer["trials"]]
    assert rows == [
        ("easgd", "trained", 1000, 1000, 812.5),
        ("<b>sync", "running", 200, 1000, rows[1][4]),
        ("downpour", "waiting", None, None, None),
    ]
    page = client.get(f"{URL}/training").text
    assert "Comparison of 3 trials" in page
    assert "<b>sync" not in page
    for row in answer["trials"]:
        assert f'href="{row["url"]}"' in page
        assert client.get(row["url"].removeprefix("/deepspark")).status_code == 200
    trial_page = client.get(answer["trials"][0]["url"].removeprefix("/deepspark")).text
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", trial_page))
    assert "easgd finished task evaluate comes next" in text
    assert "1,000 / 1,000" in text
    assert f'href="/deepspark{URL.replace(":", "%3A")}/training"' in trial_page


def test_a_comparison_that_is_over_says_which_trials_failed(client: Any, airflow: dict[str, AirflowRun]) -> None:
    StatusFile(client.folders[0], "evaluate").end("finished")
    StatusFile(client.folders[2], "train").end("failed", "no weight changed")
    over = {**tasks("failed", "skipped"), "compare": TaskState("success", 1.0, 2.0)}
    airflow[RUN_ID] = AirflowRun("success", over)
    answer = client.get(f"{URL}/training?format=json").json()
    assert (answer["state"]["name"], answer["state"]["is_over"]) == ("finished", True)
    # The second one's task has noted no end, though the run is over.
    assert [(row["state"], row["reason"][:17]) for row in answer["trials"]] == [
        ("finished", ""),
        ("failed", "the log of the ta"),
        ("failed", "no weight changed"),
    ]
    assert "1 scored, 2 failed" in answer["state"]["text"]


def test_a_trial_that_was_stopped_early_says_so(client: Any) -> None:
    ended = stage("finished", 210, 1100.0, early_stop="accuracy 0.1 at 200 is below 0.5")
    (client.folders[1] / "events.jsonl").write_bytes(lines([*RUN[:10], ended]))
    for name in ("train", "evaluate"):
        StatusFile(client.folders[1], name).end("finished")
    answer = client.get(f"{URL}/training?format=json").json()
    assert [(row["state"], row["is_stopped_early"]) for row in answer["trials"]] == [
        ("trained", False), ("finished", True), ("waiting", False),
    ]  # fmt: skip
    assert client.get(f"{URL}/training").text.count("finished, stopped early</td>") == 1


def test_a_comparison_that_failed_before_its_trials_says_so(client: Any, airflow: dict[str, AirflowRun]) -> None:
    first = client.folders[0]
    StatusFile(first.with_name(first.name.removesuffix("__trial_01")), "ingest").end("failed", "no disk")
    failed = {
        "check": TaskState("success", 1.0),
        "ingest": TaskState("failed", 2.0, try_number=1),
        "train": TaskState(None),
    }
    airflow[RUN_ID] = AirflowRun("failed", failed)
    state = client.get(f"{URL}/training?format=json").json()["state"]
    assert (state["name"], state["error"]) == ("failed", {"stage": "ingest", "task": "ingest", "text": "no disk"})


def test_list_of_runs_has_a_row_per_trial_with_its_comparisons_user_and_its_own_state(client: Any) -> None:
    rows = {row["run"]: row for row in client.get("/runs?work=all&format=json").json()["runs"]}
    cells = {run.removeprefix(RUN_ID): (row["state"], row["strategy"], row["who"]) for run, row in rows.items()}
    assert cells == {
        "": ("running", None, "ada"),
        "__trial_01": ("running", "easgd", "ada"),
        "__trial_02": ("running", "easgd", "ada"),
        "__trial_03": ("waiting", None, "ada"),
    }


def test_a_trials_duration_leaves_out_the_wait_for_other_trials(client: Any) -> None:
    def note(number: int, stage: str, began: float, ended: float | None) -> None:
        now = began
        status = StatusFile(client.folders[number - 1], stage, clock=lambda: now)
        if ended is not None:
            now = ended
            status.end("finished")

    note(1, "train", 1000.0, 1060.0)
    note(2, "train", 1060.0, 1100.0)
    note(1, "evaluate", 1130.0, 1135.0)  # all trainings come first
    seconds = {
        row["run"].removeprefix(RUN_ID): row["seconds"] for row in client.get("/runs?format=json").json()["runs"]
    }
    assert seconds["__trial_01"] == 60.0 + 5.0
    assert seconds["__trial_02"] == 40.0  # trained and waiting: its time stands still
    assert seconds["__trial_03"] is None
    note(2, "evaluate", time.time() - 100.0, None)
    (row,) = (row for row in client.get("/runs?format=json").json()["runs"] if row["run"].endswith("__trial_02"))
    assert 140.0 <= row["seconds"] < 400.0


def test_a_mapped_tasks_button_and_tab_lead_to_its_trial(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "site_path", lambda: "")
    links = {link.name: link for link in plugin.DeepSparkPlugin.operator_extra_links}
    training, report = links["Training"], links["Report"]
    assert DeepSparkTrainTrialOperator in training.operators
    assert DeepSparkCompareOperator in report.operators
    key = SimpleNamespace(dag_id=DAG, run_id=RUN_ID, task_id="train", map_index=1)
    assert training.get_link(None, ti_key=key) == f"/deepspark/runs/{DAG}/{_quoted(trial_run_id(RUN_ID, 2))}/training"
    key.map_index = -1
    assert training.get_link(None, ti_key=key) == f"/deepspark/runs/{DAG}/{_quoted(RUN_ID)}/training"
    # Airflow's part of the tab's address: a number, or the text itself for an unmapped task.
    for index, name in (("1", "&lt;b&gt;sync"), ("%7BMAP_INDEX%7D", "Comparison of 3 trials"), ("-1", "Comparison of")):
        assert name in client.get(f"{URL}/training?map_index={index}").text
    assert mapped_run_id("r", "9" * 30) == "r"


def _quoted(run: str) -> str:
    return run.replace(":", "%3A").replace("+", "%2B")


def test_tasks_of_trials_are_folded_in_the_comparison_and_single_on_a_trials_page() -> None:
    from deepspark_ops.operators.pages.run.trials import folded, of_trial

    def words(*states: str | None) -> str | None:
        return folded([TaskState(state) for state in states]).state

    assert words("success", "running", "failed") == "running"
    assert words("success", None, "failed") is None
    assert words("success", "failed", "skipped") == "failed"
    assert words("success", "skipped") == "success"
    folded_state = folded([TaskState("success", 5.0, 9.0), TaskState("success", 3.0, 6.0)])
    assert (folded_state.began, folded_state.ended) == (3.0, 9.0)
    assert folded([TaskState("success", 5.0, 9.0), TaskState("running", 9.0)]).ended is None
    assert of_trial(AirflowRun("running", tasks("running"))).state == "running"
    assert of_trial(AirflowRun("running", tasks("success", "success"))).is_over
    failed = of_trial(AirflowRun("running", tasks("failed", "skipped")))
    assert (failed.state, "compare" in failed.tasks) == ("failed", False)


def test_every_page_has_its_numbers_with_format_json(client: Any) -> None:
    files = {"/static/{name}", "/runs/{dag_id}/{run_id}/files/{name:path}"}
    names = {"dag_id": DAG, "run_id": RUN_ID}
    paths = {
        route.path for route in client.app.routes if "GET" in getattr(route, "methods", ()) and route.path not in files
    }
    assert len(paths) > 6
    for path in sorted(paths):
        url = re.sub(r"\{(\w+)(:path)?\}", lambda match: quote(names.get(match[1], "none"), safe=""), path)
        answer = client.get(url, params={"format": "json"})
        assert answer.headers["content-type"] == "application/json", path
        assert isinstance(answer.json(), dict), path
