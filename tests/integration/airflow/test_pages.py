"""The pages about a run: rights, reachable files, content, and scripts that may run."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from airflow.sdk import DAG, TaskGroup
from airflow.serialization import serialized_objects

from deepspark_ops.events import Event
from deepspark_ops.operators import DeepSparkEvaluateOperator, DeepSparkExportOperator, DeepSparkTrainOperator
from deepspark_ops.operators.pages import plugin
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.run_view.stage_status import StatusFile, note_failure
from deepspark_ops.run_view.state import AirflowRun, TaskState
from tests.integration.airflow.asking_person import asking_client, let_ask
from tests.paths import ROOT
from tests.unit.deepspark_ops.run_view.run_events import RUN, lines, started

pytestmark = pytest.mark.airflow

RUN_ID = "manual__2026-01-31T04:05:06.789+00:00"


@pytest.fixture
def page() -> ModuleType:
    """The module of the page; its import warns, and only tests may filter the warning."""
    from deepspark_ops.operators.pages import app

    return app


@pytest.fixture
def home(tmp_path: Path) -> Path:
    report = tmp_path / "runs" / "deepspark_train" / "manual__2026-01-31T04-05-06.789_00-00" / "evaluation"
    report.mkdir(parents=True)
    (report / "report.html").write_text("<p>98 %</p>")
    secret = tmp_path / "evaluation"
    secret.mkdir()
    (secret / "report.html").write_text("secret")
    return tmp_path


def test_report_is_found_by_the_runs_own_id(page: ModuleType, home: Path) -> None:
    locations = Places(home, home)
    assert page.find_report(locations, "deepspark_train", RUN_ID).read_text() == "<p>98 %</p>"
    assert page.find_report(locations, "deepspark_train", "another") is None


@pytest.mark.parametrize(
    ("dag_id", "run_id"), [("..", ".."), ("deepspark_train", "../.."), ("../..", "x"), ("~", "x"), ("", "")]
)
def test_no_path_leads_out_of_the_folder_of_runs(page: ModuleType, home: Path, dag_id: str, run_id: str) -> None:
    assert page.find_report(Places(home, home), dag_id, run_id) is None


def test_a_link_out_of_the_folder_of_runs_is_not_followed(page: ModuleType, home: Path) -> None:
    (home / "runs" / "deepspark_train" / "linked").symlink_to(home)
    assert page.find_report(Places(home, home), "deepspark_train", "linked") is None


def test_nobody_reads_without_a_login_and_readers_get_a_page_without_scripts(page: ModuleType, home: Path) -> None:
    from fastapi.testclient import TestClient

    from deepspark_ops.operators.pages.run.training import TrainingPage

    locations = Places(home, home)
    app = page.build_app(locations, TrainingPage(locations, lambda dag, run: None))
    url = f"/runs/deepspark_train/{RUN_ID.replace('+', '%2B')}/report"
    assert TestClient(app).get(url).status_code == 401

    let_ask(app, reads_runs=False)
    (route,) = [route for route in app.routes if getattr(route, "path", "") == "/runs/{dag_id}/{run_id}/report"]
    (may_read_dag,) = [
        dependency.dependency for dependency in route.dependencies if dependency.dependency is not page.get_user
    ]
    app.dependency_overrides[may_read_dag] = lambda: None
    answer = TestClient(app).get(url)
    assert (answer.status_code, answer.text) == (200, "<p>98 %</p>")
    assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("is_installed", [False, True])
def test_the_plugins_folder_registers_what_no_installed_package_does(
    monkeypatch: pytest.MonkeyPatch, is_installed: bool
) -> None:
    own_entry = EntryPoint("deepspark", "deepspark_ops.operators.pages.plugin:DeepSparkPlugin", "airflow.plugins")
    monkeypatch.setattr(plugin, "entry_points", lambda **filters: [own_entry] if is_installed else [])
    module_values = runpy.run_path(str(ROOT / "plugins" / "deepspark_plugin.py"))
    classes = [value for value in module_values.values() if isinstance(value, type)]
    assert classes == ([] if is_installed else [plugin.DeepSparkPlugin])
    assert own_entry.load() is plugin.DeepSparkPlugin


@pytest.fixture
def client(page: ModuleType, tmp_path: Path) -> Iterator[Any]:
    """A reader who may read the DAG, and a run that trains; Airflow is what ``RUNS`` says."""
    folder = tmp_path / "runs" / "deepspark_train" / "manual__2026-01-31T04-05-06.789_00-00"
    folder.mkdir(parents=True)
    with asking_client(tmp_path, airflow=lambda dag, run: RUNS.get(run)) as test_client:
        test_client.folder = folder
        yield test_client


RUNS = {
    RUN_ID: AirflowRun("running", {"check": TaskState("success", 990.0, 995.0), "train": TaskState("running", 999.0)})
}
TRAINING = f"/runs/deepspark_train/{RUN_ID.replace('+', '%2B')}/training"


def test_training_page_holds_the_last_values_without_any_script(client: Any) -> None:
    (client.folder / "events.jsonl").write_bytes(lines())
    answer = client.get(TRAINING)
    assert answer.status_code == 200
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.text))
    passages = [
        "LeNet, easgd x2, 1,000 minibatches running",
        "2 of 2 workers train",
        "400 / 1,000 40",
        "test accuracy 97.5",
        "left 1 min 0 s",
    ]
    for shown in (*passages, "lost: silent for 30 s", "lenet_iter_250.caffemodel"):
        assert shown in text, (shown, text)


def test_training_page_runs_its_own_scripts_and_reaches_nothing_else(client: Any) -> None:
    answers = [client.get(TRAINING) for _ in range(2)]
    policies = [
        dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; ")) for answer in answers
    ]
    for answer, policy in zip(answers, policies, strict=True):
        assert policy["default-src"] == "'none'"
        assert policy["connect-src"] == "'self'"
        assert "unsafe" not in answer.headers["content-security-policy"]
        nonce = policy["script-src"].removeprefix("'nonce-").removesuffix("'")
        assert policy["style-src"] == policy["script-src"]
        tags = re.findall(r"<(?:script|link|style)[^>]*>", answer.text)
        loaded = [tag for tag in tags if 'href="data:,"' not in tag]
        assert len(loaded) == 9
        for tag in loaded:
            assert f'nonce="{nonce}"' in tag
            source = re.search(r'(?:src|href)="([^"]+)"', tag)[1]
            assert source.startswith("/deepspark/static/")
            assert client.get(source.removeprefix("/deepspark")).status_code == 200
        assert not re.search(r"\son\w+=|\sstyle=|javascript:", answer.text)
    assert policies[0]["script-src"] != policies[1]["script-src"]
    assert client.get("/static/page.py").status_code == 404
    assert client.get("/static/..%2Fapp.py").status_code == 404


def test_names_of_the_users_are_text_and_no_markup(client: Any) -> None:
    evil = "<script>alert(1)</script>"
    events = [started(0, 1000.0, net=evil, strategy=evil), Event("note", 0, -1, {"text": evil}, 1001.0)]
    events += [Event("evaluation", 5, 0, {"test_net": 0, evil: 0.5}, 1002.0)]
    events += [Event("worker_lost", 5, 0, {"reason": evil}, 1003.0)]
    (client.folder / "events.jsonl").write_bytes(lines(events))
    StatusFile(client.folder, "check").end("failed", evil)
    pages = [client.get(TRAINING).text, *client.get(f"{TRAINING}?format=json&parts=true").json()["parts"].values()]
    for text in pages:
        assert evil not in text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    unknown = client.get("/runs/deepspark_train/%3Cscript%3Ealert(1)/training")
    assert unknown.status_code == 404
    assert "<script>alert" not in unknown.text


def test_training_as_json_goes_on_from_a_cursor(client: Any) -> None:
    (client.folder / "events.jsonl").write_bytes(lines(RUN[:10]))
    first = client.get(f"{TRAINING}?format=json").json()
    assert (first["state"]["name"], first["clock"], first["is_whole"], "parts" in first) == (
        "running",
        200,
        True,
        False,
    )
    (client.folder / "events.jsonl").write_bytes(lines())
    second = client.get(f"{TRAINING}?format=json&parts=true&since={first['cursor']}").json()
    assert not second["is_whole"]
    assert second["clock"] == 400
    new = {(line["chart"], line["name"]): line["clock"] for line in second["lines"]}
    assert new["loss", "worker 1"] == [260, 400]
    assert "98" not in second["parts"]["head"]
    assert 'value="400"' in second["parts"]["head"]


def test_a_run_failed_in_check_shows_the_message_and_an_unknown_run_is_named(client: Any, monkeypatch: Any) -> None:
    StatusFile(client.folder, "check").end("failed", 'solver:1:1: unknown field "max_itr"')
    tasks = {"check": TaskState("failed", 990.0, 995.0, 1), "train": TaskState("upstream_failed")}
    monkeypatch.setitem(RUNS, RUN_ID, AirflowRun("failed", tasks))
    answer = client.get(TRAINING)
    assert answer.status_code == 200
    assert "Task check failed" in answer.text
    assert "solver:1:1: unknown field &#34;max_itr&#34;" in answer.text
    assert client.get(f"{TRAINING}?format=json").json()["state"]["is_over"] is True
    unknown = client.get("/runs/deepspark_train/nothing/training")
    assert unknown.status_code == 404
    assert "there is no such run" in unknown.text
    assert client.get("/runs/deepspark_train/nothing/training?format=json").status_code == 404


def test_a_run_that_waits_for_approval_leads_those_who_may_answer_to_the_page_that_asks(
    client: Any, monkeypatch: Any
) -> None:
    from deepspark_ops.operators.pages.access.person import answer_right

    (client.folder / "events.jsonl").write_bytes(lines())
    StatusFile(client.folder, "approve").end("waiting")
    tasks = {"train": TaskState("success", 990.0, 995.0), "approve": TaskState("awaiting_input", 999.0)}
    monkeypatch.setitem(RUNS, RUN_ID, AirflowRun("running", tasks))
    run = RUN_ID.replace(":", "%3A").replace("+", "%2B")
    link = f'href="/dags/deepspark_train/runs/{run}/tasks/approve/required_actions" target="_top"'
    for may_answer in (False, True):
        client.app.dependency_overrides[answer_right] = lambda may=may_answer: lambda dags: may
        page = client.get(TRAINING).text
        fresh = client.get(f"{TRAINING}?format=json&parts=true").json()
        assert fresh["state"]["asks"] == "approve"
        for text in (page, fresh["parts"]["head"]):
            assert "The new model waits for approval" in text
            assert (link in text) == may_answer


def test_a_failed_task_with_a_run_of_its_own_has_its_message_on_the_page_of_the_training(
    client: Any, monkeypatch: Any
) -> None:
    (client.folder / "events.jsonl").write_bytes(lines())
    tasks = {name: TaskState("failed", 999.0, 1000.0, 1) for name in ("predict", "mail")}
    for failed, text in (("predict", "input=x: no such file"), ("mail", "the log of the task has the reason")):
        ended = TaskState("success", 990.0, 995.0, 1)
        monkeypatch.setitem(RUNS, RUN_ID, AirflowRun("failed", {"train": ended, failed: tasks[failed]}))
        for index, status in ((0, "finished"), (1, "failed")):  # of mapped tasks
            folder = client.folder.with_name(f"{client.folder.name}__predict_{index}")
            file = StatusFile(folder, "predict", task="predict", map_index=index)
            file.end(status, "input=x: no such file" if status == "failed" else "")
        assert client.get(f"{TRAINING}?format=json").json()["state"]["error"]["text"] == text


def test_the_second_task_that_trains_in_the_folder_of_a_run_has_its_message_on_the_page(
    client: Any, monkeypatch: Any
) -> None:
    (client.folder / "events.jsonl").write_bytes(lines())
    StatusFile(client.folder, "train", task="first").end("finished")
    note_failure(client.folder, "train", "first has trained here", task="second")
    tasks = {
        name: TaskState(state, 990.0, 995.0, 1, "train") for name, state in (("first", "success"), ("second", "failed"))
    }
    monkeypatch.setitem(RUNS, RUN_ID, AirflowRun("failed", tasks))
    error = client.get(f"{TRAINING}?format=json").json()["state"]["error"]
    assert (error["task"], error["text"]) == ("second", "first has trained here")
    assert "first has trained here" in client.get(TRAINING).text


def test_a_run_that_trains_nothing_has_the_name_of_its_work_or_of_its_dag(client: Any, monkeypatch: Any) -> None:
    for stage, name in (("mail", "deepspark_train"), ("evaluate", "evaluate"), ("predict", "predict")):
        StatusFile(client.folder, stage, task=stage).end("finished")
        ended = {stage: TaskState("success", 990.0, 995.0, 1, stage)}
        monkeypatch.setitem(RUNS, RUN_ID, AirflowRun("success", ended))
        assert client.get(f"{TRAINING}?format=json").json()["name"] == name
        text = client.get(TRAINING).text
        assert f"<title>{name}: finished</title>" in text
        assert f'href="/dags/deepspark_train/runs/{quote(RUN_ID, safe="")}" target="_top">the DAG run</a>' in text


def test_until_there_is_a_report_its_tab_shows_the_training(client: Any) -> None:
    (client.folder / "events.jsonl").write_bytes(lines())
    url = TRAINING.replace("/training", "/report")
    assert "2 of 2 workers train" in client.get(url).text
    (client.folder / "evaluation").mkdir()
    (client.folder / "evaluation" / "report.html").write_text("<p>98 %</p>")
    assert client.get(url).text == "<p>98 %</p>"
    assert client.get(f"{TRAINING}?format=json").json()["has_report"] is True


@pytest.mark.parametrize(
    "name", ["evaluation/comparison.json", "simulation/simulation.json", "evaluation/metrics.json"]
)
def test_the_reports_numbers_are_at_its_address_with_format_json(client: Any, name: str) -> None:
    (client.folder / "events.jsonl").write_bytes(lines())
    url = TRAINING.replace("/training", "/report?format=json")
    until_then = client.get(url)
    assert until_then.json()["state"]["name"] == client.get(f"{TRAINING}?format=json").json()["state"]["name"]
    (client.folder / "evaluation").mkdir()
    (client.folder / "evaluation" / "report.html").write_text("<p>98 %</p>")
    missing = client.get(url)
    assert (missing.status_code, missing.headers["content-type"]) == (404, "application/json")
    (client.folder / name).parent.mkdir(exist_ok=True)
    (client.folder / name).write_text('{"rows": [1]}')
    answer = client.get(url)
    assert (answer.json(), answer.headers["content-type"]) == ({"rows": [1]}, "application/json")
    (client.folder / name).unlink()
    (client.folder / name).symlink_to("/etc/passwd")
    assert client.get(url).status_code == 404


def test_the_chart_library_is_compressed_once_for_everybody(client: Any, page: ModuleType) -> None:
    name = page.chart_library().name
    packed = client.get(f"/static/{name}", headers={"accept-encoding": "gzip"})
    plain = client.get(f"/static/{name}", headers={"accept-encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == plain.content
    assert "immutable" in packed.headers["cache-control"]


def test_every_page_asks_for_a_login_and_every_page_of_a_run_for_the_right_to_read_its_dag(
    page: ModuleType, home: Path
) -> None:
    from fastapi.testclient import TestClient

    app = page.build_app(Places(home, home))
    reader = TestClient(app, follow_redirects=False)
    for url in (TRAINING, f"{TRAINING}?format=json", TRAINING.replace("training", "report"), "/static/training.js"):
        assert reader.get(url).status_code == 401, url
        sent = reader.get(url, headers={"accept": "text/html"})
        if "json" in url:
            assert sent.status_code == 401
        else:
            assert (sent.status_code, sent.headers["location"][:25]) == (307, "/api/v2/auth/login?next=h")
    let_ask(app, reads_runs=False)
    for route in app.routes:
        rights = [part.dependency for part in route.dependencies if part.dependency is not page.get_user]
        # A form asks whether our page sent the request; test_model_changes.py tests the rights.
        assert len(rights) == ("{run_id}" in route.path) + ("POST" in route.methods), route.path
        for right in rights:
            app.dependency_overrides[right] = refuse
    assert reader.get(TRAINING).status_code == 403
    assert reader.get(f"{TRAINING}?format=json").status_code == 403


def refuse() -> None:
    from fastapi import HTTPException

    raise HTTPException(403, "Forbidden")


def test_twenty_open_pages_ask_airflows_database_once_a_second() -> None:
    from deepspark_ops.operators.pages.lists.airflow_runs import AirflowRuns

    now, queries = [0.0], []
    runs = AirflowRuns(lambda dag, run: queries.append((dag, run)), clock=lambda: now[0])
    for second in range(3):
        now[0] = float(second)
        for _ in range(20):
            runs.of("d", "r")
    runs.of("d", "other")
    assert queries == [("d", "r")] * 3 + [("d", "other")]


def test_links_of_two_trainings_in_a_dag_lead_to_the_run_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "_installation", lambda: Places(tmp_path, tmp_path))
    for name in ("r__a.train", "r__b.train", "r__fit_1"):
        (tmp_path / "runs" / "d" / name).mkdir(parents=True)
    with DAG("d", schedule=None) as dag:
        with TaskGroup("a"):
            trained = DeepSparkTrainOperator(task_id="train", solver="s.prototxt")
            scored = DeepSparkEvaluateOperator(task_id="evaluate", run=trained.output)
            DeepSparkExportOperator(task_id="export", run=scored.output)
        with TaskGroup("b"):
            DeepSparkTrainOperator(task_id="train", solver="s.prototxt")
        DeepSparkEvaluateOperator(task_id="elsewhere", run="/a/run")
        fits = DeepSparkTrainOperator.partial(task_id="fit").expand(solver=["s.prototxt", "t.prototxt"])
        DeepSparkEvaluateOperator.partial(task_id="score").expand(run=fits.output)
    StatusFile(tmp_path / "runs" / "d" / "r__fit_1", "evaluate", task="score", map_index=1)
    names = vars(serialized_objects)
    serialization = names.get("DagSerialization") or names["SerializedDAG"]  # the latter until Airflow 3.1
    stored = serialization.from_dict(serialization.to_dict(dag))  # as the API server has the tasks
    runs = {}
    for task_id, map_index in (
        ("a.train", -1),
        ("a.export", -1),
        ("b.train", -1),
        ("elsewhere", -1),
        ("fit", 1),
        ("score", 1),
    ):
        key = SimpleNamespace(dag_id="d", run_id="r", task_id=task_id, map_index=map_index)
        address = plugin.TrainingLink().get_link(stored.get_task(task_id), ti_key=key)
        runs[task_id] = address.removeprefix("/deepspark/runs/d/").removesuffix("/training")
    assert runs == {
        "a.train": "r__a.train", "a.export": "r__a.train", "b.train": "r__b.train", "elsewhere": "r", "fit": "r__fit_1",
        "score": "r__fit_1",
    }  # fmt: skip


def test_links_on_the_tasks_lead_to_the_runs_pages() -> None:
    key = SimpleNamespace(dag_id="deepspark_train", run_id=RUN_ID, task_id="train", map_index=-1)
    links = {link.name: link for link in plugin.DeepSparkPlugin.operator_extra_links}
    address = "/deepspark/runs/deepspark_train/manual__2026-01-31T04%3A05%3A06.789%2B00%3A00/"
    assert links["Training"].get_link(None, ti_key=key) == f"{address}training"
    assert links["Report"].get_link(None, ti_key=key) == f"{address}report"
    names = [operator.__name__ for operator in links["Training"].operators]
    assert {f"DeepSpark{stage}Operator" for stage in ("Train", "Evaluate", "Export", "Promote")} <= set(names)
    routes = [view["url_route"] for view in plugin.DeepSparkPlugin.external_views]
    assert len(set(routes)) == len(routes)  # Airflow drops a second view of the same route
