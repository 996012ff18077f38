"""The everyday work on many runs in a real browser: names, notes, archive, stop, filter and columns; every link."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from urllib.parse import quote

import pytest

from deepspark_ops.operators.pages.addresses import DATASETS_URL, MODELS_URL, RUNS_URL, URL_PREFIX, run_url
from tests.browser import Page, browser_page
from tests.e2e.airflow_instance import AirflowInstance, DagRun, log_in
from tests.e2e.finished_runs import (
    dataset_of,
    promoted_model,
    run_from_source,
    run_of_regression,
    run_of_segmentation,
    run_on_own_data,
)
from tests.e2e.looks import assert_accessible, assert_looks
from tests.e2e.small_example import SmallExample

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.tf,
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.timeout(1800),
]

LISTED = "[...document.querySelectorAll('input[name=run]')].map(box => box.value)"
LOADED = "document.readyState === 'complete'"
DAG = "deepspark_train"


@pytest.fixture(scope="module")
def opened(airflow: AirflowInstance) -> Iterator[Page]:
    """A page of the user who may trigger."""
    with browser_page() as page:
        log_in(page, airflow, airflow.site + RUNS_URL, user="user")
        yield page


@pytest.fixture(scope="module")
def refused(airflow: AirflowInstance) -> DagRun:
    """A run whose solver is missing: over in seconds."""
    run = airflow.trigger(DAG, {"solver": "none.prototxt", "name": "refused by check", "tags": "wrong, seen"})
    run.wait("failed")
    return run


def search(run: DagRun, **parameters: str) -> str:
    more = "".join(f"&{name}={quote(value)}" for name, value in parameters.items())
    return f"{run.airflow.site}{RUNS_URL}?search={quote(run.run_id)}{more}"


def test_the_forms_name_and_tags_are_seen_and_searched(page: Page, airflow: AirflowInstance, refused: DagRun) -> None:
    page.goto(f"{airflow.site}{RUNS_URL}?search={quote('refused by check')}&filter={quote('tag=seen')}")
    assert f"{DAG}/{refused.run_id}" in page.evaluate(LISTED)
    assert page.evaluate("document.querySelector('tbody th a').innerText") == "refused by check"
    page.click("tbody th a")
    page.wait_until("document.title.startsWith('refused by check')")
    assert "run: refused by check" in refused.log_text("check")


def test_a_note_of_the_page_is_airflows_and_airflows_is_the_pages(page: Page, refused: DagRun) -> None:
    page.goto(refused.page("training"))
    page.click("#edit_note summary")
    page.fill("form[name=note] textarea", "the file's <name> was wrong")
    page.click("form[name=note] button")
    page.wait_until("document.getElementById('note').innerText === \"the file's <name> was wrong\"")
    assert refused.read()["note"] == "the file's <name> was wrong"
    refused.airflow.api().call("PATCH", refused.path, {"note": "of Airflow's page"})
    note = "fetch(`${location.pathname}?format=json`).then(answer => answer.json()).then(run => run.airflow.note)"
    page.wait_until(f'{note}.then(note => note === "of Airflow\'s page")')  # an answer of Airflow is kept for a second
    page.goto(refused.page("training"))
    assert page.evaluate("document.getElementById('note').innerText") == "of Airflow's page"
    page.goto(search(refused, filter="note~airflow"))
    assert page.evaluate(LISTED) == [f"{DAG}/{refused.run_id}"]
    assert_looks(page, "run_label")


def test_a_run_is_renamed_archived_and_taken_out_by_hand(page: Page, refused: DagRun) -> None:
    page.goto(refused.page("training"))
    page.evaluate("document.querySelector('input[name=name]').closest('details').open = true")
    page.fill("input[name=name]", "a new name")
    page.click("form[action$='/label'] button")
    page.wait_until(f"document.title.startsWith('a new name') && {LOADED}")
    page.goto(search(refused))
    page.click("input[name=run]")
    page.click("button[formaction*='/archive']")
    page.wait_until(f"{LOADED} && {LISTED}.length === 0")
    page.goto(search(refused, archived="only"))
    assert page.evaluate("document.querySelector('tbody th a').innerText") == "a new name"
    page.click("input[name=run]")
    page.click("button[formaction*='/archive']")
    page.wait_until(f"{LOADED} && {LISTED}.length === 0")
    page.goto(search(refused))
    assert page.evaluate(f"{LISTED}.length") == 1


def test_a_reader_sees_no_form_that_changes_a_run(airflow: AirflowInstance, refused: DagRun) -> None:
    with browser_page() as page:
        log_in(page, airflow, refused.page("training"), user="viewer")
        assert (
            page.evaluate("document.querySelectorAll('form[method=post], form[name=stop], #edit_note, #again').length")
            == 0
        )
        page.goto(search(refused))
        assert page.evaluate("document.querySelectorAll('button[formmethod=post], #again').length") == 0


def test_a_run_is_stopped_and_triggered_again_from_the_list(
    page: Page, airflow: AirflowInstance, example: SmallExample
) -> None:
    run = airflow.trigger(DAG, example.conf(overrides="max_iter: 200000"))
    page.goto(search(run))
    page.wait_until(f"{LISTED}.length === 1")
    page.evaluate("window.confirm = () => true; document.querySelector('input[name=run]').click()")
    page.click("button[name=stop]")
    run.wait("failed")
    assert run.task_states()["export"] == "failed"  # if all last tasks were skipped, the scheduler may say success
    page.wait_until(f"{LOADED} && ['failed', 'stopped'].includes(document.querySelector('tbody .state').innerText)")
    page.evaluate("document.querySelector('input[name=run]').click()")
    page.click("button[name=again]")
    page.wait_until("document.getElementById('again').open")
    options = json.loads(page.evaluate("document.querySelector('#again textarea').value"))
    assert options == example.conf(overrides="max_iter: 200000")  # the form's defaults are left out
    assert '"n_workers": 2' in page.evaluate("document.querySelector('#again pre').textContent")
    assert_looks(page, "again")
    page.fill("#again textarea", json.dumps(options | {"solver": 5}))
    page.click("#again button[name=trigger]")
    page.wait_until(
        "document.querySelector('#again [role=alert]').innerText.includes('Invalid input for param solver')"
    )
    page.troubles.clear()  # the refusal
    changes = {"overrides": "max_iter: 20", "name": f"again {run.run_id}"}
    page.fill("#again textarea", json.dumps(options | changes))
    page.click("#again button[name=trigger]")
    page.wait_until(f"location.pathname.endsWith('/training') && {LOADED}")
    page.wait_until("document.title.startsWith('again')")  # once check has begun
    second_run = airflow.await_run(DAG, lambda row: row["conf"].get("name") == changes["name"])
    assert page.evaluate("decodeURIComponent(location.pathname)").split("/")[-2] == second_run.run_id
    assert second_run.read()["conf"] == options | changes
    airflow.api().call("PATCH", second_run.path, {"state": "failed"})


def test_times_of_a_runs_page_are_of_the_readers_zone(page: Page, refused: DagRun) -> None:
    page.call("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
    try:
        page.goto(refused.page("training"))
        times = page.evaluate(
            "[...document.querySelectorAll('#below time')].map(time => [time.dateTime, time.title, time.innerText])"
        )
    finally:
        page.call("Emulation.setTimezoneOverride", timezoneId="")
    assert times
    for moment, title, text in times:
        at = datetime.fromisoformat(moment)
        assert text == at.astimezone(timezone(timedelta(hours=5, minutes=30))).strftime("%H:%M:%S")
        assert title == at.strftime("%Y-%m-%d %H:%M:%S UTC")


def test_a_filter_by_clicks_and_a_mistake_in_it(page: Page, airflow: AirflowInstance) -> None:
    run = run_from_source(airflow)
    page.goto(airflow.site + RUNS_URL)
    page.choose("form.build select[name=field]", "workers")
    page.choose("form.build select[name=operator]", ">=")
    page.fill("form.build input[name=value]", "2")
    page.click("form.build button")
    page.wait_until(f"location.search.includes('filter=workers') && {LOADED}")
    page.choose("form.build select[name=field]", "net")
    page.choose("form.build select[name=operator]", "~")
    page.fill("form.build input[name=value]", "small")
    page.click("form.build button")
    page.wait_until(f"location.search.includes('and+net') && {LOADED}")
    assert page.evaluate("document.querySelector('input[name=filter]').value") == "workers>=2 and net~small"
    assert f"{run.dag_id}/{run.run_id}" in page.evaluate(LISTED)
    page.goto(f"{airflow.site}{RUNS_URL}?filter={quote('wrkers=2')}")
    assert 'there is no field "wrkers"; the nearest is workers' in page.text()
    assert page.evaluate("document.getElementById('filter_error').getClientRects().length") == 1


def test_columns_are_chosen_and_ordered_and_stay_so(page: Page, airflow: AirflowInstance) -> None:
    run_from_source(airflow)
    heads = "[...document.querySelectorAll('thead [data-column]:not([hidden])')].map(head => head.dataset.column)"
    cells = "[...document.querySelector('tbody tr').querySelectorAll('[data-column]:not([hidden])')]"
    page.goto(airflow.site + RUNS_URL)
    first = page.evaluate(heads)
    assert first[:3] == ["name", "state", "net"]
    page.evaluate("document.querySelector('details.columns').open = true")
    page.click("details.columns button[aria-label='state: later']")
    page.evaluate("[...document.querySelectorAll('details.columns li')].find(li => li.innerText.includes('loss'))"
                  ".querySelector('input').click()")  # fmt: skip
    expected = ["name", "net", "state", *(name for name in first[3:] if name != "loss")]
    assert page.evaluate(heads) == expected
    page.goto(airflow.site + RUNS_URL)
    page.wait_until(f"JSON.stringify({heads}) === {json.dumps(json.dumps(expected, separators=(',', ':')))}")
    assert page.evaluate(f"{cells}.map(cell => cell.dataset.column)") == expected
    page.evaluate("document.querySelector('details.columns').open = true")
    page.evaluate("[...document.querySelectorAll('details.columns button')].at(-1).click()")
    assert page.evaluate(heads) == first


@pytest.mark.parametrize(
    ("make_run", "has_dataset"),
    [(run_from_source, True), (run_of_regression, True), (run_of_segmentation, False)],
    ids=["classification", "regression", "segmentation"],
)
def test_every_link_of_a_finished_run_its_bundle_model_and_dataset_answers_without_an_error(
    page: Page, airflow: AirflowInstance, make_run: Callable[[AirflowInstance], DagRun], has_dataset: bool
) -> None:
    run = make_run(airflow)
    model = promoted_model(airflow, run, "promoted" if make_run is run_from_source else make_run.__name__)
    starts = [
        *(run_url(run.dag_id, run.run_id, name) for name in ("training", "report", "bundle", "samples")),
        f"{MODELS_URL}/{model}", f"{RUNS_URL}?search={quote(run.run_id)}",
        *([f"{DATASETS_URL}/{dataset_of(run).name}"] if has_dataset else []),
    ]  # fmt: skip
    links: dict[str, str] = {}
    for start in starts:
        page.goto(airflow.site + start)
        page.wait_until(LOADED)
        hrefs = page.evaluate(
            "[...document.querySelectorAll('a[href]')]"
            ".map(link => new URL(link.getAttribute('href'), location.href).href)"  # a link of a drawing has no text
        )
        assert hrefs or start.endswith("/report"), start
        links |= {href.partition("#")[0]: start for href in hrefs if href.startswith(f"{airflow.site}/")}
    assert len(links) > 20
    answers = page.evaluate(
        f"Promise.all({json.dumps(list(links))}.map(async (link) => {{ const answer = await fetch(link);"
        " await answer.arrayBuffer(); return [link, answer.status, answer.headers.get('content-type')]; }))"
    )
    wrong = [(link, status, links[link]) for link, status, _ in answers if status != 200]
    assert wrong == []
    paths: set[str] = set()
    for link, _, kind in answers:
        if kind.startswith("text/html") and f"{airflow.site}{URL_PREFIX}/" in link and "download" not in link:
            page.goto(link)
            assert page.troubles == [], link
            path = link.partition("?")[0]
            if path not in paths and not path.endswith("/report"):  # the report's headers let no script run
                paths.add(path)
                assert_accessible(page)
    page.goto((run.folder / "evaluation" / "report.html").as_uri())
    assert_accessible(page)


def test_many_runs_are_looked_over_and_a_line_leads_to_its_run(page: Page, airflow: AirflowInstance) -> None:
    runs = [run_from_source(airflow), run_on_own_data(airflow)]
    page.goto(f"{airflow.site}{RUNS_URL}?filter={quote('accuracy>0')}")
    page.click("nav.tabs a.over")
    page.wait_until("document.querySelector('#parallel polyline') && document.querySelector('#scatter .point')")
    assert_looks(page, "overview")
    page.choose("#axes select[name=x]", "n_workers")
    page.choose("#axes select[name=y]", "images/s")
    page.wait_until("location.search.includes('x=n_workers')")
    names = "[...document.querySelectorAll('#parallel polyline title')].map(title => title.textContent.split('\\n')[1])"
    assert {run.run_id for run in runs} <= set(page.evaluate(names))
    line = f"document.querySelectorAll('#parallel polyline')[{names}.indexOf({json.dumps(runs[0].run_id)})]"
    page.evaluate(f"{line}.dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
    page.wait_until(f"location.href === {json.dumps(runs[0].page('training'))} && {LOADED}")
