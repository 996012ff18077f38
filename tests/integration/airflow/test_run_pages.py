"""The pages about many runs: who sees which rows, what the address chooses, and that names are text."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from deepspark_ops.operators.pages import plugin
from deepspark_ops.operators.run_plan import Places
from deepspark_ops.run_index.index_file import read_index
from deepspark_ops.run_index.listing import KnownRun
from tests.unit.deepspark_ops.run_view.run_events import RUN, lines, stage, started

pytestmark = pytest.mark.airflow

EVIL = "<script>alert(1)</script>"
KNOWN = [
    KnownRun("deepspark_train", "run-a", "success", 300.0, 300.0, 360.0, "manual", "ada"),
    KnownRun("deepspark_train", "run-b", "failed", 200.0, 200.0, 230.0, "scheduled"),
    KnownRun("secret_dag", "run-c", "success", 100.0, 100.0, 130.0, "manual", "eve"),
    KnownRun("deepspark_train", "run-d", "queued", 400.0, None, None, "manual", "ada"),
]


def write_run(home: Path, dag: str, run: str, *, net: str = "LeNet", ending: str = "finished") -> Path:
    folder = home / "runs" / dag / run
    folder.mkdir(parents=True)
    events = [started(0, 1000.0, net=net), *RUN[1:], stage(ending, 1000, 1100.0, images_per_s=812.5)]
    (folder / "events.jsonl").write_bytes(lines(events))
    (folder / "config.json").write_text('{"solver": "/s/lenet_solver.prototxt", "comm_period": 4}')
    return folder


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Any]:
    """A person who may read all DAGs but ``secret_dag``."""
    from fastapi.testclient import TestClient

    from deepspark_ops.operators.pages import app as pages
    from deepspark_ops.operators.pages.rights import readable_dags
    from deepspark_ops.operators.pages.runs import RunsPage
    from deepspark_ops.operators.pages.training import TrainingPage

    write_run(tmp_path, "deepspark_train", "run-a")
    write_run(tmp_path, "deepspark_train", "run-b", net="AlexNet", ending="stopped")
    write_run(tmp_path, "secret_dag", "run-c", net="SecretNet")
    places = Places(tmp_path, tmp_path)
    # Airflow's side gives more than asked for: the page must not rely on the query alone.
    runs = RunsPage(places, lambda dags: KNOWN, lambda: {"deepspark_train"}, clock=lambda: 500.0)
    app = pages.build_app(places, TrainingPage(places, lambda dag, run: None), runs=runs)
    for route in app.routes:
        for dependency in getattr(route, "dependencies", ()):
            app.dependency_overrides[dependency.dependency] = lambda: None
    app.dependency_overrides[pages.get_user] = lambda: None
    app.dependency_overrides[readable_dags] = lambda: {"deepspark_train", "another"}
    with TestClient(app) as made:
        made.home, made.app = tmp_path, app
        yield made


def shown(client: Any, address: str = "/runs") -> list[str]:
    return [row["run"] for row in client.get(f"{address}{'&' if '?' in address else '?'}format=json").json()["runs"]]


def test_a_person_sees_the_runs_of_dags_that_he_may_read_and_no_trace_of_others(client: Any) -> None:
    assert shown(client) == ["run-d", "run-a", "run-b"]
    for address in ("/runs", "/runs?format=json", "/runs?dag=secret_dag", "/runs?search=secret&format=json"):
        text = client.get(address).text
        for hidden in ("run-c", "SecretNet", "eve"):
            assert hidden not in text, address
    assert "secret_dag" not in client.get("/runs").text


def test_rights_are_asked_of_airflows_auth_manager_for_the_person_who_asks(monkeypatch: Any) -> None:
    from deepspark_ops.operators.pages import rights

    allowed = {"ada": {"deepspark_train"}}
    manager = SimpleNamespace(
        get_authorized_dag_ids=lambda user, method: allowed.get(user, set()) if method == "GET" else {"everything"}
    )
    monkeypatch.setattr(rights, "get_auth_manager", lambda: manager)
    assert rights.readable_dags("ada") == {"deepspark_train"}
    assert rights.readable_dags("bob") == set()


def test_a_person_without_rights_gets_an_empty_list_and_without_a_login_none(client: Any) -> None:
    from deepspark_ops.operators.pages import app as pages
    from deepspark_ops.operators.pages.rights import readable_dags

    client.app.dependency_overrides[readable_dags] = lambda: set()
    assert shown(client) == []
    assert "none of a DAG that you may read" in client.get("/runs").text
    del client.app.dependency_overrides[pages.get_user]
    assert client.get("/runs").status_code == 401
    sent = client.get("/runs", headers={"accept": "text/html"}, follow_redirects=False)
    assert (sent.status_code, sent.headers["location"][:25]) == (307, "/api/v2/auth/login?next=h")


def test_the_page_shows_what_the_json_says_without_any_script(client: Any) -> None:
    answer = client.get("/runs?format=json").json()
    row = next(row for row in answer["runs"] if row["run"] == "run-a")
    numbers = ("state", "net", "solver", "strategy", "n_workers", "tau", "clock", "accuracy", "images_per_s", "seconds")
    told = ("finished", "LeNet", "lenet_solver.prototxt", "easgd", 2, "4", 1000, 0.975, 812.5, 60.0)
    assert tuple(row[name] for name in numbers) == told
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", client.get("/runs").text))
    for part in ("run-a", "finished", "lenet_solver.prototxt", "1,000", "97.5 %", "812", "1 min 0 s", "ada"):
        assert part in text, part
    assert [r["state"] for r in answer["runs"]] == ["waiting", "finished", "stopped"]
    assert client.get("/runs").text.count("<polyline") == 2


def test_the_address_holds_search_filter_and_sort(client: Any) -> None:
    assert shown(client, "/runs?search=alexnet") == ["run-b"]
    assert shown(client, "/runs?state=finished") == ["run-a"]
    assert shown(client, "/runs?sort=net") == ["run-b", "run-a", "run-d"]
    page = client.get("/runs?search=net&sort=-when&strategy=easgd").text
    assert 'name="search" value="net"' in page
    assert '<option value="easgd" selected>' in page
    assert "/deepspark/runs?search=net&amp;strategy=easgd&amp;sort=when" in page  # the other way round
    assert 'aria-sort="descending"' in page
    assert client.get("/runs?sort=%3Cscript%3E&state=%22%3E").status_code == 200


def test_names_are_text_and_no_markup(client: Any) -> None:
    write_run(client.home, "another", "run-e", net=EVIL)
    for address in ("/runs", f"/runs?search={EVIL}", f"/runs?sort={EVIL}"):
        text = client.get(address).text
        assert EVIL not in text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_the_page_runs_its_own_script_and_its_form_reaches_this_server_alone(client: Any) -> None:
    answer = client.get("/runs")
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["form-action"] == "'self'"
    assert "unsafe" not in answer.headers["content-security-policy"]
    nonce = policy["script-src"].removeprefix("'nonce-").removesuffix("'")
    tags = [tag for tag in re.findall(r"<(?:script|link|style)[^>]*>", answer.text) if 'href="data:,"' not in tag]
    assert tags
    for tag in tags:
        assert f'nonce="{nonce}"' in tag
        source = re.search(r'(?:src|href)="([^"]+)"', tag)[1]
        assert client.get(source.removeprefix("/deepspark")).status_code == 200
    assert not re.search(r"\son\w+=|\sstyle=|javascript:", answer.text)


def test_runs_that_are_over_are_indexed_by_the_first_list(client: Any) -> None:
    assert not list(client.home.rglob("index.json"))
    client.get("/runs")
    indexed = {path.parent.name for path in client.home.rglob("index.json")}
    assert indexed == {"run-a", "run-b"}


def test_a_run_that_airflow_has_forgotten_is_still_listed(client: Any) -> None:
    write_run(client.home, "another", "old-run")
    answer = client.get("/runs?search=old-run&format=json").json()["runs"]
    assert [(row["run"], row["state"]) for row in answer] == [("old-run", "finished")]


def test_240_runs_open_in_under_a_second(client: Any) -> None:
    first = write_run(client.home, "another", "many-0")
    client.get("/runs")
    for number in range(1, 240):
        folder = first.with_name(f"many-{number}")
        folder.mkdir()
        for name in ("config.json", "events.jsonl", "index.json"):
            os.link(first / name, folder / name)
    began = time.process_time()  # not what other processes take of the machine
    answer = client.get("/runs")
    assert time.process_time() - began < 1.0
    assert answer.text.count("<polyline") == 242


def test_the_list_is_in_airflows_navigation() -> None:
    (view,) = [view for view in plugin.DeepSparkPlugin.external_views if view["destination"] == "nav"]
    assert (view["name"], view["href"]) == ("DeepSpark", "/deepspark/runs")


COMPARE = "/runs/compare?run=deepspark_train/run-a&run=deepspark_train/run-b"


def test_two_runs_are_drawn_on_one_chart_a_quantity_each_in_its_colour(client: Any) -> None:
    answer = client.get(f"{COMPARE}&format=json").json()
    losses = [line for line in answer["lines"] if line["chart"] == "loss"]
    assert [(line["name"], line["run"]) for line in losses] == [("run-a", 0), ("run-b", 1)]
    alone = client.get("/runs/deepspark_train/run-a/training?format=json").json()["lines"]
    (mean,) = [line for line in alone if (line["chart"], line["name"]) == ("loss", "mean of all")]
    assert (losses[0]["clock"], losses[0]["value"]) == (mean["clock"], mean["value"])
    assert {line["chart"] for line in answer["lines"]} >= {"loss", "test_accuracy", "images_per_s", "learning_rate"}
    assert answer["state"]["is_over"]


def test_settings_are_shown_where_they_differ_and_all_by_a_switch(client: Any) -> None:
    solver = "base_lr: {} max_iter: 1000 type: 'SGD' solver_mode: CPU net: '{}'"
    for run, rate in (("run-a", "0.01"), ("run-b", "0.003")):
        folder = client.home / "runs" / "deepspark_train" / run
        (folder / "solver.prototxt").write_text(solver.format(rate, folder))
    settings = {one["name"]: one for one in client.get(f"{COMPARE}&format=json").json()["settings"]}
    assert settings["solver: base_lr"] == {"name": "solver: base_lr", "values": ["0.01", "0.003"], "differs": True}
    assert settings["solver: solver_mode"]["values"] == ["CPU", "CPU"]
    assert settings["comm_period"]["differs"] is False
    assert "solver: net" not in settings
    some, every = client.get(COMPARE).text, client.get(f"{COMPARE}&all=1").text
    assert "solver: base_lr" in some
    assert "comm_period" not in some
    assert "comm_period" in every


def test_confusion_matrices_stand_side_by_side_and_classes_are_text(client: Any) -> None:
    from deepspark_ops.evaluate.metrics import ScoredOn, build_metrics
    from deepspark_ops.evaluate.scores import ScoreSum

    scored = ScoredOn(
        net="n", run="r", iteration=1, weights="w", weights_digest="sha256:1", dataset="d", dataset_digest="sha256:2",
        split="test", score_blob="prob",
    )  # fmt: skip
    for run, right in (("run-a", 3), ("run-b", 1)):
        evaluation = client.home / "runs" / "deepspark_train" / run / "evaluation"
        evaluation.mkdir()
        total = ScoreSum(n_classes=2)
        total.add(np.array([[0.9, 0.1]] * right + [[0.1, 0.9]] * (4 - right)), np.zeros(4, np.int64))
        metrics = build_metrics(total.result(), scored, (EVIL, "zero"))
        (evaluation / "metrics.json").write_text(metrics.to_json())
    found = client.get(f"{COMPARE}&format=json").json()["confusions"]
    assert [one["counts"] for one in found] == [[[3, 1], [0, 0]], [[1, 3], [0, 0]]]
    page = client.get(COMPARE).text
    assert page.count('<svg class="confusion"') == 2
    assert EVIL not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"\son\w+=|\sstyle=|javascript:", page)
    assert client.get("/runs?format=json").json()["runs"][1]["accuracy_of"] == "evaluation"


def test_a_comparison_shows_nothing_of_a_dag_that_one_may_not_read(client: Any) -> None:
    secret = client.get("/runs/compare?run=deepspark_train/run-a&run=secret_dag/run-c&format=json")
    missing = client.get("/runs/compare?run=deepspark_train/run-a&run=secret_dag/none&format=json")
    assert (secret.status_code, missing.status_code) == (404, 404)
    assert secret.json()["error"].replace("run-c", "none") == missing.json()["error"]
    outside = client.get("/runs/compare?run=deepspark_train/run-a&run=../../etc&format=json")
    assert outside.status_code == 404


@pytest.mark.parametrize("n_runs", [0, 1, 9])
def test_two_to_eight_runs_are_compared(client: Any, n_runs: int) -> None:
    address = "/runs/compare?" + "&".join(f"run={EVIL}/{number}" for number in range(n_runs))
    answer = client.get(address)
    assert answer.status_code == 400
    assert f"{n_runs} runs are chosen; choose 2 to 8" in answer.text
    assert EVIL not in client.get(f"/runs/compare?run={EVIL}/1&run={EVIL}/2").text


def write_dataset(home: Path, name: str) -> None:
    for split, counts in (("train", [5, 3]), ("test", [1, 1])):
        n = sum(counts)
        fields = {
            "split": split, "shard_format": "lmdb", "encoded": False, "recipe_sha256": "1", "sample_shape": [1, 8, 8],
            "source": {"path": "/data/digits.gz", "format": "idx", "sha256": "2"}, "n_samples": n, "n_classes": 2,
            "class_names": [EVIL, "one"], "label_histogram": counts, "mean_values": [1.0], "n_rejected": 0,
            "mean_file": {"file": "mean", "sha256": "3"}, "n_bytes": 8,
            "shards": [{"file": "s", "sha256": "4", "n_samples": n, "n_bytes": 8}],
        }  # fmt: skip
        folder = home / "datasets" / name / split
        folder.mkdir(parents=True)
        (folder / "dataset.json").write_text(json.dumps(fields))


def test_datasets_are_shown_with_their_classes_and_the_runs_that_used_them(client: Any) -> None:
    for dag, run, name in (("deepspark_train", "run-a", "digits-1"), ("secret_dag", "run-c", "hidden-2")):
        write_dataset(client.home, name)
        config = {"dataset": str(client.home / "datasets" / name)}
        (client.home / "runs" / dag / run / "config.json").write_text(json.dumps(config))
    (one,) = client.get("/datasets?format=json").json()["datasets"]
    assert (one["name"], [run["run"] for run in one["runs"]], one["error"]) == ("digits-1", ["run-a"], None)
    assert [one["splits"][split]["label_histogram"] for split in ("train", "test")] == [[5, 3], [1, 1]]
    page = client.get("/datasets").text
    assert "hidden-2" not in page
    assert EVIL not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    (client.home / "datasets" / "digits-1" / "test" / "dataset.json").write_text("{")
    assert "rerun task &#34;ingest&#34;" in client.get("/datasets").text


@pytest.mark.parametrize("fails", [False, True])
def test_a_task_leaves_the_index_of_a_run_that_has_trained(tmp_path: Path, fails: bool) -> None:
    from deepspark_ops.operators.stage_run import noted_stage

    untrained = tmp_path / "runs" / "deepspark_train" / "untrained"
    with noted_stage(untrained, "check", logging.getLogger("test")):
        pass
    assert not (untrained / "index.json").exists()
    trained = write_run(tmp_path, "deepspark_train", "run-a")
    with suppress(ZeroDivisionError), noted_stage(trained, "train", logging.getLogger("test")):
        1 / (not fails)
    found = read_index(trained)
    assert found is not None
    assert found.clock == 1000
