"""The forms for a run's name, tags and archive mark: changes, history, refused users."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from deepspark_ops.evaluate.task_pages.report_name import report_name
from deepspark_ops.run_label.label import RunLabel, read_label
from deepspark_ops.run_view.state import AirflowRun, TaskState
from tests.integration.airflow.asking_person import SITE, asking_client, send_form, token_of
from tests.integration.airflow.page_runs import EVIL, RUNS, write_run

pytestmark = pytest.mark.airflow

RUN_A = "/runs/deepspark_train/run-a"
PAGE = f"{RUN_A}/training"


class Person:
    """A person whose rights a test may change."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.name = "ada"
        self.readable = {"deepspark_train", "another"}
        self.triggers = {"deepspark_train"}
        self.audit: list[tuple[str, str, str, dict[str, Any]]] = []
        self.airflow: dict[str, AirflowRun] = {}

    def label(self, run: str, dag: str = "deepspark_train") -> RunLabel:
        return read_label(self.home / "runs" / dag / run)


@pytest.fixture
def person(tmp_path: Path) -> Person:
    for dag, run in (("deepspark_train", "run-a"), ("deepspark_train", "run-b"), ("secret_dag", "run-c")):
        write_run(tmp_path, dag, run)
    write_run(tmp_path, "another", "run-e")
    return Person(tmp_path)


@pytest.fixture
def client(person: Person) -> Iterator[Any]:
    with asking_client(
        person.home, dags={"deepspark_train"}, listed=RUNS, airflow=lambda dag, run: person.airflow.get(run),
        follow_redirects=False, name=lambda: person.name, readable=lambda: person.readable,
        may_trigger=lambda dags: set(dags) <= person.triggers, audit=lambda *entry: person.audit.append(entry),
        checks_forms=True,
    ) as test_client:  # fmt: skip
        yield test_client


def send(client: Any, path: str, *, headers: dict[str, str] | None = None, **fields: Any) -> Any:
    return send_form(client, PAGE, path, headers, **fields)


def test_the_report_shows_the_note_as_it_is_now(client: Any, person: Person) -> None:
    report = person.home / "runs" / "deepspark_train" / "run-a" / "evaluation" / "report.html"
    report.parent.mkdir(exist_ok=True)
    report.write_text(f"<title>a: 98 % correct</title>{report_name('a', ())}<p>run-a</p>")
    for note in ("look", EVIL):
        person.airflow["run-a"] = AirflowRun("success", {}, note=note)
        page = client.get(f"{RUN_A}/report").text
        assert page == report.read_text().replace("<p>run-a", f'<p class="run-note">{escape(note)}</p><p>run-a')
    person.airflow["run-a"] = AirflowRun("success", {})
    assert client.get(f"{RUN_A}/report").text == report.read_text()


def test_the_report_has_the_new_name_too(client: Any, person: Person) -> None:
    report = person.home / "runs" / "deepspark_train" / "run-a" / "evaluation" / "report.html"
    report.parent.mkdir(exist_ok=True)
    report.write_text(f"<title>old: 98 % correct</title>{report_name('old', ())}<p>run-a</p>")
    send(client, f"{RUN_A}/label", name=EVIL, tags="base")
    evil = "&lt;script&gt;alert(1)&lt;/script&gt;"
    page = client.get(f"{RUN_A}/report").text
    assert page.startswith(f"<title>{evil}: 98 % correct</title><!-- name --><h1>{evil} <span")
    assert '<span class="tag">base</span></h1><!-- end of name --><p>run-a</p>' in page
    send(client, f"{RUN_A}/label")
    assert "<h1>LeNet, easgd x2, 1,000 minibatches</h1>" in report.read_text()


def test_a_name_by_the_form_is_on_every_page_and_in_the_audit_log(client: Any, person: Person) -> None:
    answer = send(client, f"{RUN_A}/label", name=f" the  {EVIL} ", tags="base, v2")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/deepspark{RUN_A}/training")
    assert person.label("run-a") == RunLabel(name=f"the {EVIL}", tags=("base", "v2"))
    assert person.audit == [
        ("deepspark.label", "deepspark_train", "ada", {"run": "run-a", "name": f"the {EVIL}", "tags": ["base", "v2"]})
    ]
    for path in ("/runs", f"{RUN_A}/training", f"{RUN_A}/bundle", "/runs?search=v2"):
        text = client.get(path).text
        assert "the &lt;script&gt;alert(1)&lt;/script&gt;" in text, path
        assert EVIL not in text, path
    send(client, f"{RUN_A}/label")
    assert person.label("run-a").name == ""
    assert client.get(f"{RUN_A}/training?format=json").json()["name"] == "LeNet, easgd x2, 1,000 minibatches"


def test_a_name_that_is_too_long_is_refused_and_nothing_changes(client: Any, person: Person) -> None:
    answer = send(client, f"{RUN_A}/label", name="x" * 121)
    assert answer.status_code == 409
    assert "at most 120" in answer.text
    assert person.label("run-a") == RunLabel()
    assert person.audit == []


def test_runs_are_archived_together_and_taken_out_again_with_the_lists_address_kept(
    client: Any, person: Person
) -> None:
    keys = ["deepspark_train/run-a", "deepspark_train/run-b"]
    answer = send(client, "/runs/archive?search=net&sort=net", run=keys)
    assert (answer.status_code, answer.headers["location"]) == (303, "/deepspark/runs?search=net&sort=net")
    assert person.label("run-a").archived
    assert person.label("run-b").archived
    assert [event for event, *_ in person.audit] == ["deepspark.archive"] * 2
    answer = send(client, "/runs/archive?take_out=1", run=keys[:1])
    assert not person.label("run-a").archived
    assert person.label("run-b").archived


@pytest.mark.parametrize(
    ("path", "fields"),
    [(f"{RUN_A}/label", {"name": "b"}), ("/runs/archive", {"run": "deepspark_train/run-a"})],
)
def test_a_foreign_form_an_old_token_and_a_reader_change_nothing(
    client: Any, person: Person, path: str, fields: dict[str, str]
) -> None:
    token = token_of(client, PAGE)
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = client.post(path, data={"token": token, **fields}, headers=headers)
        assert (answer.status_code, "from another site" in answer.text) == (403, True)
    assert client.post(path, data={**fields, "token": "1.a"}, headers={"Origin": SITE}).status_code == 403
    assert client.post(path, data=fields, headers={"Origin": SITE}).status_code == 403
    person.triggers = set()
    answer = client.post(path, data={"token": token, **fields}, headers={"Origin": SITE})
    assert (answer.status_code, "right to trigger deepspark_train" in answer.text) == (403, True)
    assert 'name="token"' not in client.get(f"{RUN_A}/training").text
    person.triggers, person.readable = {"deepspark_train"}, set()
    answer = client.post(path, data={"token": token, **fields}, headers={"Origin": SITE})
    assert (answer.status_code, "there is no run" in answer.text) == (404, True)
    assert person.label("run-a") == RunLabel()
    assert person.audit == []


@pytest.mark.parametrize("key", ["secret_dag/run-c", "deepspark_train/none", "deepspark_train/../secret_dag/run-c"])
def test_a_run_that_is_hidden_or_missing_looks_the_same_and_no_folder_is_made(
    client: Any, person: Person, key: str
) -> None:
    answer = send(client, "/runs/archive", run=["deepspark_train/run-a", key])
    assert (answer.status_code, "there is no run" in answer.text) == (404, True)
    assert not person.label("run-a").archived
    assert not list(person.home.rglob("label.json"))


def test_the_note_is_airflows_and_is_text_and_a_trial_or_forgotten_run_has_none(client: Any, person: Person) -> None:
    person.airflow["run-a"] = AirflowRun("running", {"train": TaskState("running", 1.0)}, note=f"look: {EVIL}")
    page = client.get(f"{RUN_A}/training").text
    assert "look: &lt;script&gt;" in page
    assert 'data-api="/api/v2/dags/deepspark_train/dagRuns/run-a"' in page
    assert 'data-again="/api/v2/dags/deepspark_train/dagRuns/run-a"' in page
    assert '<dialog id="again"' in page
    assert client.get(f"{RUN_A}/training?format=json").json()["airflow"] == {"note": f"look: {EVIL}"}
    forgotten = client.get("/runs/deepspark_train/run-b/training").text
    assert 'data-api=""' in forgotten
    assert "edit_note" not in forgotten
    assert 'id="again"' not in forgotten


def test_a_run_that_waits_for_approval_has_no_pill_that_says_finished(client: Any, person: Person) -> None:
    from deepspark_ops.run_view.stage_status import StatusFile

    StatusFile(person.home / "runs" / "deepspark_train" / "run-a", "approve").end("waiting")
    tasks = {"train": TaskState("success", 1.0, 2.0), "approve": TaskState("deferred", 3.0)}
    person.airflow["run-a"] = AirflowRun("running", tasks)
    page = client.get(f"{RUN_A}/training").text
    assert '<span class="state state-waiting">waits for approval</span>' in page
    assert "<title>LeNet, easgd x2, 1,000 minibatches: waits for approval</title>" in page
