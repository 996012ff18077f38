"""The pages about many runs in a real browser, with a real login: Runs, Compare, Datasets, Models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from urllib.parse import quote
from zoneinfo import ZoneInfo

import pytest

from deepspark_ops.operators.pages.addresses import MODELS_URL, RUNS_URL, URL_PREFIX
from tests.browser import Page, browser_page
from tests.e2e.airflow_instance import AirflowInstance, DagRun, log_in
from tests.e2e.finished_runs import dataset_of, promoted_model, run_from_source, run_on_own_data
from tests.e2e.looks import TRACES, assert_looks
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


def widths_of_pictures(within: str) -> str:
    """Return an expression: the widths of the pictures that the browser has really drawn."""
    return f"[...document.querySelectorAll('{within} img')].map(picture => picture.naturalWidth)"


@pytest.fixture(scope="module")
def opened(airflow: AirflowInstance) -> Iterator[Page]:
    """A page of the administrator."""
    with browser_page() as page:
        log_in(page, airflow, airflow.site + RUNS_URL)
        yield page


def key(run: DagRun) -> str:
    return f"{run.dag_id}/{run.run_id}"


def test_every_page_without_a_login_leads_to_it_and_back(airflow: AirflowInstance) -> None:
    run = DagRun(airflow, "deepspark_train", "no such run")
    lists = (RUNS_URL, f"{RUNS_URL}/compare?run=a/b&run=c/d", MODELS_URL, f"{URL_PREFIX}/datasets")
    addresses = [run.page("training"), run.page("report"), *(airflow.site + path for path in lists)]
    with browser_page() as page:
        for address in addresses:
            page.goto(address)
            page.wait_until("location.pathname.startsWith('/auth/login') && document.querySelector('[name=password]')")
        log_in(page, airflow, airflow.site + RUNS_URL, user="viewer")  # who may read them all
        page.goto(f"{airflow.site}{MODELS_URL}")
        assert page.evaluate("location.pathname") == MODELS_URL


def test_runs_are_searched_filtered_ticked_and_compared(page: Page, airflow: AirflowInstance) -> None:
    first, second = run_from_source(airflow), run_on_own_data(airflow)
    page.goto(airflow.site + RUNS_URL)
    page.wait_until(f"{json.dumps([key(first), key(second)])}.every(run => {LISTED}.includes(run))")
    assert "or when deepspark_dataset is updated" in page.text()  # deepspark_retrain's schedule, as Airflow has it
    page.resize(1280, 900)
    page.wait_until("window.innerWidth === 1280")
    table_width, box_width = page.evaluate(
        "(table => [table.scrollWidth, table.clientWidth])(document.querySelector('.wide'))"
    )
    assert table_width <= box_width
    assert_looks(page, "runs")

    page.fill("input[name=search]", "own_data")
    page.click("form.choose button")
    page.wait_until(f"location.search.includes('search=own_data') && {LISTED}.length === 1")
    assert page.evaluate(LISTED) == [key(second)]
    page.fill("input[name=search]", "")
    page.choose("select[name=state]", "finished")
    page.choose("select[name=dag]", "deepspark_train")
    page.click("form.choose button")
    page.wait_until("location.search.includes('state=finished') && document.readyState === 'complete'")
    states = page.evaluate("[...document.querySelectorAll('tbody .state')].map(state => state.innerText)")
    assert set(states) == {"finished"}

    for run in (first, second):
        page.click(f'input[value="{key(run)}"]')
    page.click("form p.acts button")
    page.wait_until(f"location.pathname.endsWith('/compare') && {TRACES} >= 2")
    text = page.text()
    for passage in ("2 runs", "Settings that differ", "n_workers", "Confusion matrices"):
        assert passage in text
    assert page.evaluate("document.querySelectorAll('.matrices figure').length") == 3  # with their difference
    assert "the other wrong" in text
    widths = page.evaluate(widths_of_pictures(".gallery"))
    assert widths
    assert min(widths) > 0
    assert_looks(page, "compare")


def test_times_are_in_the_readers_zone_with_utc_as_title(page: Page, airflow: AirflowInstance) -> None:
    run = run_from_source(airflow)
    page.call("Emulation.setTimezoneOverride", timezoneId="Asia/Kathmandu")
    moment = "document.querySelector('tbody time')"
    try:
        page.goto(f"{airflow.site}{RUNS_URL}?search={quote(run.run_id)}")
        page.wait_until(f"{moment} && !{moment}.innerText.includes('UTC')")
        shown = page.evaluate(f"(time => [time.dateTime, time.innerText, time.title])({moment})")
    finally:
        page.call("Emulation.setTimezoneOverride", timezoneId="")
    utc = datetime.fromisoformat(shown[0])
    local = utc.astimezone(ZoneInfo("Asia/Kathmandu"))
    assert shown[1:] == [f"{local:%Y-%m-%d %H:%M}", f"{utc:%Y-%m-%d %H:%M:%S} UTC"]


def test_the_list_of_a_live_run_refreshes_itself_and_keeps_the_ticks(
    page: Page, airflow: AirflowInstance, example: SmallExample
) -> None:
    run = airflow.trigger("deepspark_train", example.conf(overrides="max_iter: 20"))
    page.goto(f"{airflow.site}{RUNS_URL}?search={quote(run.run_id)}")
    page.wait_until(f"{LISTED}.length === 1")
    assert page.evaluate("document.querySelector('tbody .state').innerText") in ("waiting", "running")
    page.evaluate("document.querySelector('input[name=run]').click(); window.isSamePage = true")
    run.wait()
    page.wait_until("document.querySelector('tbody .state').innerText === 'finished'")
    assert page.evaluate("[window.isSamePage, document.querySelector('input[name=run]').checked]") == [True, True]


def test_a_dataset_is_shown_with_the_runs_that_used_it(page: Page, airflow: AirflowInstance) -> None:
    run = run_from_source(airflow)
    page.goto(f"{airflow.site}{URL_PREFIX}/datasets")
    assert dataset_of(run).name in page.text()
    page.evaluate("document.querySelectorAll('summary').forEach(summary => summary.click())")
    page.wait_until(f"document.body.innerText.includes({json.dumps(run.run_id)})")
    assert_looks(page, "datasets")
    page.click("h2 a")
    page.wait_until("location.pathname.includes('/datasets/') && document.readyState === 'complete'")
    assert "manifest's digest" in page.text()
    widths = page.evaluate(widths_of_pictures(".classes"))
    assert len(widths) == 10
    assert min(widths) > 0
    assert_looks(page, "dataset")


def test_a_model_is_listed_and_leads_to_its_run(page: Page, airflow: AirflowInstance) -> None:
    model, run = promoted_model(airflow), run_from_source(airflow)
    page.goto(airflow.site + MODELS_URL)
    assert_looks(page, "models")
    page.evaluate(f"[...document.querySelectorAll('a')].find(a => a.innerText === {json.dumps(model)}).click()")
    page.wait_until(f"location.pathname.endsWith({json.dumps('/' + model)}) && document.readyState === 'complete'")
    assert "v1 in production" in page.text()
    assert_looks(page, "model")
    page.evaluate(
        f"[...document.querySelectorAll('a')].find(a => a.innerText === {json.dumps(run.folder.name)}).click()"
    )
    page.wait_until("location.pathname.endsWith('/training') && document.body.innerText.includes('finished')")
