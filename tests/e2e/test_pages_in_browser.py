"""The page Training in a real browser, with a real login, while a run trains in the Airflow of ``deepspark ui``."""

from __future__ import annotations

import re

import pytest

from deepspark_ops.local_airflow.api import quoted
from tests.browser import Page, browser_page
from tests.e2e.airflow_instance import RUN_S, AirflowInstance, DagRun, log_in
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

RANGES = "JSON.stringify([...document.querySelectorAll('.plot')].filter(p => p.layout).map(p => p.layout.xaxis.range))"
CLOCK = (
    "Number((document.querySelector('.bar span') || {textContent: '0'}).textContent.split('/')[0].replaceAll(',', ''))"
)
STATE = "(document.querySelector('.state') || {textContent: ''}).textContent"


def test_a_run_is_watched_from_its_first_task_to_its_report(airflow: AirflowInstance, example: SmallExample) -> None:
    with browser_page() as page:
        conf = example.conf(overrides="max_iter: 8000 display: 20 test_interval: 200 snapshot: 1000")
        run = airflow.trigger("deepspark_train", conf)
        url = run.page("training")
        log_in(page, airflow, url)
        page.wait_until(f"{STATE} === 'waiting'")
        assert "waits for task" in page.text()
        page.wait_until(f"{STATE} === 'running' && {TRACES} === 4", RUN_S)
        clock = page.evaluate(CLOCK)
        page.wait_until(f"{CLOCK} > {clock}")  # by itself
        assert_log_is_served(run)
        assert_looks(page, "training")
        assert_keys(page)

        task = f"{airflow.site}/dags/deepspark_train/runs/{quoted(run.run_id)}/tasks/train"
        page.goto(f"{task}/plugin/deepspark-training-task-instance")
        page.wait_until("document.querySelector('iframe')?.contentDocument?.querySelector('h1') != null")
        page.goto(f"{task}/details")
        page.wait_until(
            "[...document.querySelectorAll('a[href$=\"/training\"]')].some(a => a.innerText === 'Training')"
        )

        page.goto(run.page("report"))  # the report takes the page's place by itself
        page.wait_until("document.body.innerText.includes('Confusion matrix')", RUN_S)
        page.goto(url)
        page.wait_until(f"{STATE} === 'finished' && document.body.innerText.includes('export: success')", RUN_S)
        assert_stops_asking(page)
        assert page.troubles == []


def assert_log_is_served(run: DagRun) -> None:
    lines = run.log_text("train").splitlines()
    assert not [line for line in lines if "Could not read served logs" in line]
    reports = [line for line in lines if re.match(r"worker \d+ loss", line)]
    assert reports
    assert len(reports) == len(set(reports))  # read from the file and from the server, each line once


def assert_keys(page: Page) -> None:
    page.evaluate("document.querySelector('.plot').focus()")
    old_ranges = page.evaluate(RANGES)
    page.press("+")
    page.wait_until(f"{RANGES} !== {old_ranges!r}")
    page.wait_until(f"new Set(JSON.parse({RANGES}).map(String)).size === 1")  # zoom in one zooms all
    page.press("ArrowRight")
    page.wait_until("document.querySelectorAll('.hoverlayer .hovertext, .hoverlayer .legend').length >= 2")
    page.press("Home")


def assert_stops_asking(page: Page) -> None:
    """Wait until the page has not asked for five seconds, more than two of its turns."""
    count = "performance.getEntriesByType('resource').filter(entry => entry.name.includes('format=json')).length"
    page.wait_until(f"{count} >= 1")
    page.wait_until(f"(n => new Promise(done => setTimeout(() => done({count} === n), 5000)))({count})")
