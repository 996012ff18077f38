"""The pages about many runs: rights per row, choice by the address, names as text."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deepspark_ops.config.promote import HandPromoteConfig
from deepspark_ops.operators.pages import plugin
from deepspark_ops.operators.tasks.stage_run import noted_stage
from deepspark_ops.registry.candidate import promote_by_hand
from deepspark_ops.run_index.index_file import read_index
from deepspark_ops.run_index.listing import SORTS, KnownRun
from deepspark_ops.run_label.label import RunLabel, write_label
from tests.integration.airflow import page_runs
from tests.integration.airflow.asking_person import text_of
from tests.integration.airflow.page_runs import EVIL, write_run
from tests.reference.bundles import make_bundle
from tests.reference.evaluations import evaluation, write_evaluation

pytestmark = pytest.mark.airflow


def shown(client: Any, address: str = "/runs") -> list[str]:
    return [row["run"] for row in client.get(f"{address}{'&' if '?' in address else '?'}format=json").json()["runs"]]


def test_a_person_sees_the_runs_of_dags_that_he_may_read_and_no_trace_of_others(client: Any) -> None:
    assert shown(client) == ["run-d", "run-a", "run-b"]
    for address in ("/runs", "/runs?format=json", "/runs?dag=secret_dag", "/runs?search=secret&format=json"):
        text = client.get(address).text
        for hidden in ("run-c", "SecretNet", "mallory"):
            assert hidden not in text, address
    assert "secret_dag" not in client.get("/runs").text


def test_rights_are_asked_of_airflows_auth_manager_for_the_person_who_asks(monkeypatch: Any) -> None:
    from deepspark_ops.operators.pages.access import person

    allowed = {"ada": {"deepspark_train"}}
    manager = SimpleNamespace(
        get_authorized_dag_ids=lambda user, method: allowed.get(user, set()) if method == "GET" else {"everything"}
    )
    monkeypatch.setattr(person, "get_auth_manager", lambda: manager)
    assert person.readable_dags("ada") == {"deepspark_train"}
    assert person.readable_dags("bob") == set()


def test_a_viewer_of_airflow_may_not_answer_a_waiting_task_and_a_user_may(monkeypatch: Any) -> None:
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    from deepspark_ops.operators.pages.access import person

    monkeypatch.setattr(person, "get_auth_manager", SimpleAuthManager)
    monkeypatch.setattr(person.DagModel, "get_team_name", lambda dag: None)
    may_answer = {
        role: person.answer_right(SimpleAuthManagerUser(username="ada", role=role))(["deepspark_train"])
        for role in ("viewer", "user", "op")
    }
    assert may_answer == {"viewer": False, "user": True, "op": True}


def test_a_person_without_rights_gets_an_empty_list_and_without_a_login_none(client: Any) -> None:
    from deepspark_ops.operators.pages import app as pages
    from deepspark_ops.operators.pages.access.person import readable_dags

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
    expected = ("finished", "LeNet", "lenet_solver.prototxt", "easgd", 2, "4", 1000, 0.975, 812.5, 60.0)
    assert tuple(row[name] for name in numbers) == expected
    assert row["curve"][0] == [100.0, 1.7]
    text = text_of(client.get("/runs").text)
    for part in ("run-a", "finished", "lenet_solver.prototxt", "1,000", "97.5 %", "812", "1 min 0 s", "ada"):
        assert part in text, part
    assert [r["state"] for r in answer["runs"]] == ["waiting", "finished", "stopped"]
    assert client.get("/runs").text.count("<polyline") == 2


def test_a_run_that_waits_for_approval_leads_those_who_may_answer_to_the_page_that_asks(
    client: Any, monkeypatch: Any
) -> None:
    from deepspark_ops.operators.pages.access.person import answer_right

    asking = KnownRun("deepspark_train", "run-a", "running", 300.0, 300.0, asks="approve")
    monkeypatch.setattr(page_runs, "RUNS", [asking, *page_runs.RUNS[1:]])
    link = 'href="/dags/deepspark_train/runs/run-a/tasks/approve/required_actions" target="_top">waits for app'
    address = "/runs?state=waits+for+approval"
    page = client.get(address).text
    assert '<span class="state state-waiting">waits for approval</span>' in page
    assert link not in page
    client.app.dependency_overrides[answer_right] = lambda: lambda dags: set(dags) == {"deepspark_train"}
    assert link in client.get(address).text
    assert shown(client, address) == ["run-a"]


def test_a_failed_run_says_the_first_line_of_its_error_as_text(client: Any, monkeypatch: Any) -> None:
    failed = KnownRun("deepspark_train", "run-a", "failed", 300.0, 300.0, 360.0)
    for _ in range(2):  # the second list has the rows of the first, whose run was over
        assert shown(client, "/runs?state=failed") == []
    monkeypatch.setattr(page_runs, "RUNS", [failed, *page_runs.RUNS[1:]])
    assert shown(client, "/runs?state=failed") == ["run-a"]
    stages = client.home / "runs" / "deepspark_train" / "run-a" / "stages"
    stages.mkdir()
    fields = {"format_version": 1, "stage": "train", "status": "failed", "began": 1.0, "time": 2.0, "text": ""}
    message = "net: <b>no such file</b>\nremedy: none"
    status = {**fields, "done": None, "total": None, "message": message, "warnings": []}
    (stages / "train.status.json").write_text(json.dumps(status))
    page = client.get("/runs?state=failed").text
    text = "net: &lt;b&gt;no such file&lt;/b&gt;"
    columns = page.count("<th data-column=")
    row = f'<tr class="reason"><td class="pick"></td><td colspan="{columns}" title="{text}">{text}</td></tr>'
    assert page.count(row) == 1  # in the whole width of the table
    assert "remedy" not in page
    assert "lenet_solver.prototxt" in text_of(page)


def test_times_have_a_form_for_scripts_and_say_their_zone_without_a_script(client: Any) -> None:
    page = client.get("/runs").text
    assert '<time datetime="1970-01-01T00:05:00Z" title="1970-01-01 00:05:00 UTC">1970-01-01 00:05 UTC</time>' in page
    assert "list.js" in page


def test_a_list_with_a_live_run_asks_to_be_refreshed(client: Any, monkeypatch: Any) -> None:
    assert re.search(r'<body[^>]* data-refresh-ms="\d+"', client.get("/runs").text)
    over = [run for run in page_runs.RUNS if run.state not in ("queued", "running")]
    monkeypatch.setattr(page_runs, "RUNS", over)
    assert "data-refresh-ms" not in client.get("/runs").text


def test_the_address_holds_search_filter_and_sort(client: Any) -> None:
    assert shown(client, "/runs?search=alexnet") == ["run-b"]
    assert shown(client, "/runs?state=finished") == ["run-a"]
    assert shown(client, "/runs?sort=net") == ["run-b", "run-a", "run-d"]
    page = client.get("/runs?search=net&sort=-when&strategy=easgd").text
    assert re.search(r'name="search"[^>]* value="net"', page)
    assert '<option value="easgd" selected>' in page
    assert "/deepspark/runs?search=net&amp;strategy=easgd&amp;sort=when" in page  # the other way round
    assert 'aria-sort="descending"' in page
    assert client.get("/runs?sort=%3Cscript%3E&state=%22%3E").status_code == 200


def test_schedules_are_shown_in_words_of_what_runs_by_itself_or_is_asked_for(client: Any) -> None:
    answer = client.get("/runs?format=json").json()["schedules"]
    daily = {"dag": "daily_dag", "text": "03:00 UTC every day", "next_run": 1769832300.0, "is_paused": False}
    by_hand = {"dag": "deepspark_train", "text": "only when it is triggered", "next_run": None, "is_paused": True}
    assert answer == [daily, by_hand]
    page = text_of(client.get("/runs").text)
    assert "daily_dag : 03:00 UTC every day next 2026-01-31 04:05 UTC" in page
    assert "only when it is triggered" not in page
    page = text_of(client.get("/runs?dag=deepspark_train").text)
    assert "deepspark_train : only when it is triggered paused" in page
    assert "03:00 UTC" not in page


def test_every_column_can_be_sorted_by_also_without_its_head_which_a_phone_hides(client: Any) -> None:
    page = client.get("/runs?sort=net").text
    options = re.findall(r'<option value="(-?\w+)"( selected)?>([^<]+)</option>', page.split('name="sort"')[1])
    assert {value.removeprefix("-") for value, _, _ in options} == set(SORTS) - {"dag"}
    assert [value for value, selected, _ in options if selected] == ["net"]
    other = client.get("/runs?sort=when").text
    assert '<option value="when" selected>when, the other way round</option>' in other
    assert 'data-word="images/s"' in page


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
    assert answer.text.count("<polyline") == 100
    assert "page 1 of 3" in text_of(answer.text)


def test_pages_of_a_hundred_runs_hold_every_run_once(client: Any) -> None:
    for number in range(250):
        (client.home / "runs" / "another" / f"many-{number:03}").mkdir(parents=True)
    listed: list[str] = []
    for page, n_runs in ((1, 100), (2, 100), (3, 53)):
        text = client.get(f"/runs?sort=run&page={page}").text
        runs = re.findall(r'name="run" value="[^"/]+/([^"]+)"', text)
        assert len(runs) == n_runs
        assert ('rel="prev"' in text, 'rel="next"' in text) == (page > 1, page < 3)
        listed += runs
    assert listed == sorted(shown(client))
    assert len(set(listed)) == 253
    assert "page 3 of 3" in text_of(client.get("/runs?page=99").text)
    assert client.get("/runs?page=x").status_code == 200


def test_a_filter_of_the_address_chooses_rows_and_stays_in_every_link(client: Any) -> None:
    assert shown(client, "/runs?filter=net~lenet+and+accuracy%3E97%25") == ["run-a"]
    assert shown(client, "/runs?filter=workers%3D2+and+state!%3Dfinished") == ["run-b"]
    page = client.get("/runs?filter=net~lenet").text
    assert 'name="filter" value="net~lenet"' in page
    assert "/deepspark/runs?filter=net~lenet&amp;sort=net" in page


def test_a_mistake_in_the_filter_is_a_line_below_the_field_and_no_row_is_shown(client: Any) -> None:
    answer = client.get("/runs?filter=acuracy%3E%3Ci%3E")
    assert answer.status_code == 200
    message = (
        '<p id="filter_error" class="wrong" role="alert">filter: there is no field &#34;acuracy&#34;; the nearest is'
    )
    assert f"{message} accuracy</p>" in answer.text
    assert 'aria-describedby="filter_error"' in answer.text
    assert "run-a" not in answer.text
    plain = client.get("/runs?filter=acuracy%3E1&format=json")
    assert (plain.status_code, plain.json()["runs"]) == (400, [])
    assert plain.json()["filter_error"].endswith("the nearest is accuracy")


def test_the_rows_are_fetched_as_csv_and_parquet_without_formulas(client: Any) -> None:
    import pyarrow.parquet

    write_label(client.home / "runs" / "deepspark_train" / "run-a", RunLabel(name="=1+1", tags=("a", "b")))
    answer = client.get("/runs?filter=net%3Dlenet&format=csv")
    assert answer.headers["content-type"].startswith("text/csv")
    (row,) = csv.DictReader(io.StringIO(answer.text))
    names = ("name", "run", "tags", "net", "accuracy", "n_workers", "when", "archived")
    assert [row[name] for name in names] == [
        "'=1+1", "run-a", "a, b", "LeNet", "0.975", "2", "1970-01-01T00:05:00+00:00", "False",
    ]  # fmt: skip
    table = pyarrow.parquet.read_table(io.BytesIO(client.get("/runs?format=parquet").content))
    assert table.column("run").to_pylist() == ["run-d", "run-a", "run-b"]
    assert table.column("accuracy").to_pylist() == [None, 0.975, 0.975]
    assert client.get("/runs?format=csv&filter=x").status_code == 400


def test_trainings_are_apart_from_convert_and_clean_and_archived_runs_are_hidden(client: Any, monkeypatch: Any) -> None:
    clean = KnownRun("deepspark_train", "run-x", "success", 100.0, 100.0, 101.0)
    monkeypatch.setattr(page_runs, "RUNS", [*page_runs.RUNS, clean])
    with noted_stage(client.home / "runs" / "deepspark_train" / "run-x", "clean", logging.getLogger("test")):
        pass
    assert shown(client) == ["run-d", "run-a", "run-b"]
    assert shown(client, "/runs?work=other") == ["run-x"]
    assert shown(client, "/runs?work=all") == ["run-d", "run-a", "run-b", "run-x"]
    assert shown(client, "/runs?filter=work%3Dclean") == ["run-x"]
    text = text_of(client.get("/runs").text)
    assert "trainings 3 comparisons and upkeep 1 all 4" in text
    write_label(client.home / "runs" / "deepspark_train" / "run-a", RunLabel(archived=True))
    assert shown(client) == ["run-d", "run-b"]
    assert shown(client, "/runs?archived=only") == ["run-a"]
    assert shown(client, "/runs?archived=all") == ["run-d", "run-a", "run-b"]
    assert shown(client, "/runs?filter=archived%3Dyes") == ["run-a"]
    hidden = client.get("/runs?search=run-a").text
    assert "1 archived run is hidden" in text_of(hidden)
    assert "archived=all" in hidden


def test_a_rejection_and_a_promotion_are_seen(client: Any) -> None:
    folder = client.home / "runs" / "deepspark_train"
    rejected = {"promotes": False, "approval": {"answer": "refused", "who": "bob"}}
    (folder / "run-b" / "decision.json").write_text(json.dumps(rejected))
    (folder / "run-a" / "decision.json").write_text(json.dumps({"promotes": True, "approval": None}))
    with noted_stage(folder / "run-a", "promote", logging.getLogger("test")):
        pass
    outcomes = {row["run"]: row["outcome"] for row in client.get("/runs?format=json").json()["runs"]}
    assert outcomes == {"run-a": "promoted", "run-b": "rejected", "run-d": None}
    assert ">promoted</span>" in client.get("/runs").text
    assert shown(client, "/runs?filter=outcome%3Drejected") == ["run-b"]


def test_a_promotion_by_hand_is_seen(client: Any) -> None:
    run = client.home / "runs" / "deepspark_train" / "run-a"
    rejected = {"promotes": False, "approval": {"answer": "refused", "who": "bob"}}
    (run / "decision.json").write_text(json.dumps(rejected))
    assert client.get("/runs?format=json").json()["runs"][1]["outcome"] == "rejected"
    evaluated = evaluation([0, 1, 1, 0], [0, 1, 1, 1])
    make_bundle(run / "bundle", b"weights", evaluated=evaluated, run="run-a", weights_digest="sha256:a")
    models = client.home / "models"
    config = HandPromoteConfig(models=models, model="digits", bundle=run, reason="we know better")
    promote_by_hand(config, "anna", lambda *paths: None, force=True)
    outcomes = {row["run"]: row["outcome"] for row in client.get("/runs?format=json").json()["runs"]}
    assert outcomes == {"run-a": "promoted by hand", "run-b": None, "run-d": None}
    assert '<span class="outcome good-outcome">promoted by hand</span>' in client.get("/runs").text
    assert shown(client, "/runs?filter=outcome~promoted") == ["run-a"]
    (models / "digits" / "journal.jsonl").write_text("{}\n")  # a damaged history is a matter of the model's page
    assert client.get("/runs?format=json").json()["runs"][1]["outcome"] == "rejected"


def test_the_accuracy_of_a_run_is_the_same_on_each_page_and_names_its_samples(client: Any) -> None:
    run = client.home / "runs" / "deepspark_train" / "run-a"
    write_evaluation(run / "evaluation", evaluation([0, 1, 1, 0], [0, 1, 1, 1]))
    row = client.get("/runs?format=json").json()["runs"][1]
    assert (row["accuracy"], row["n_samples"]) == (0.75, 4)
    training = "/runs/deepspark_train/run-a/training"
    assert client.get(f"{training}?format=json").json()["evaluation"] == {
        "accuracy": 0.75,
        "figure": None,
        "n_samples": 4,
    }
    assert "75.0 % accuracy of 4 samples" in text_of(client.get("/runs").text)
    assert "accuracy, evaluation 75.0 % of 4 samples" in text_of(client.get(training).text)
    compared = "/runs/compare?run=deepspark_train/run-a&run=deepspark_train/run-b"
    assert "75.0 % of 4 samples" in text_of(client.get(compared).text)
    assert "97.5 % accuracy, test net" in text_of(client.get("/runs").text)  # of run-b, which has no evaluation
    assert "97.5 % test net" in text_of(client.get(compared).text)


def test_an_empty_list_leads_to_the_next_step(client: Any, monkeypatch: Any) -> None:
    from deepspark_ops.operators.pages.access.person import trigger_right

    monkeypatch.setattr(page_runs, "RUNS", [])
    shutil.rmtree(client.home / "runs")
    assert "ask who gives rights in Airflow" in text_of(client.get("/runs").text)
    client.app.dependency_overrides[trigger_right] = lambda: lambda dags: True
    page = client.get("/runs").text
    assert '<a href="/dags/deepspark_train" target="_top">open deepspark_train</a>' in page


def test_the_list_is_in_airflows_navigation() -> None:
    (view,) = [view for view in plugin.DeepSparkPlugin.external_views if view["destination"] == "nav"]
    assert (view["name"], view["href"]) == ("DeepSpark", "/deepspark/runs")


@pytest.mark.parametrize("fails", [False, True])
def test_a_task_leaves_the_index_of_a_run_that_has_trained(tmp_path: Path, fails: bool) -> None:
    untrained = tmp_path / "runs" / "deepspark_train" / "untrained"
    with noted_stage(untrained, "check", logging.getLogger("test")):
        pass
    assert not (untrained / "index.json").exists()
    trained = write_run(tmp_path, "deepspark_train", "run-a")
    with suppress(ZeroDivisionError), noted_stage(trained, "train", logging.getLogger("test")):
        1 / (not fails)
    index = read_index(trained)
    assert index is not None
    assert index.clock == 1000


def test_pages_that_refresh_themselves_share_their_rows_and_a_person_sees_a_change_at_once(client: Any) -> None:
    def shown_names(**headers: str) -> set[str]:
        rows = client.get("/runs?format=json", headers=headers).json()["runs"]
        return {row["name"] for row in rows if row["run"] == "run-a"}

    refresh = {"x-deepspark-refresh": "1"}
    assert shown_names(**refresh) == shown_names()
    write_label(client.home / "runs" / "deepspark_train" / "run-a", RunLabel(name="renamed"))
    assert shown_names(**refresh) != {"renamed"}
    assert shown_names() == {"renamed"}
    assert shown_names(**refresh) == {"renamed"}
