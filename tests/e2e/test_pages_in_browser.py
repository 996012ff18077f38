"""The page Training in a real browser, with a real login, while a run trains in the Airflow of ``deepspark ui``."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from deepspark_ops.local_airflow.api import USER, Api, quoted
from deepspark_ops.local_airflow.services import free_port
from deepspark_ops.operators.pages.addresses import run_url
from tests.browser import Page, browser_page
from tests.e2e.conftest import Sandbox
from tests.paths import ROOT

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.tf, pytest.mark.slow, pytest.mark.browser]

UP_S, RUN_S = 180.0, 300.0
TRACES = "[...document.querySelectorAll('.plot')].filter(plot => plot.querySelector('.scatterlayer .trace')).length"
RANGES = "JSON.stringify([...document.querySelectorAll('.plot')].filter(p => p.layout).map(p => p.layout.xaxis.range))"
CLOCK = (
    "Number((document.querySelector('.bar span') || {textContent: '0'}).textContent.split('/')[0].replaceAll(',', ''))"
)
STATE = "(document.querySelector('.state') || {textContent: ''}).textContent"


@contextmanager
def airflow_ui(sandbox: Sandbox, port: int) -> Iterator[Api]:
    """``deepspark ui`` on a port, from its start to Ctrl-C."""
    command = [sys.executable, "-m", "deepspark_ops.command.cli", "ui", "--port", str(port)]
    started = subprocess.Popen(
        command, cwd=ROOT, env=sandbox.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    told: list[str] = []
    is_up = threading.Event()

    def listen() -> None:
        for line in started.stdout or ():
            told.append(line)
            if "Ctrl-C ends it" in line:
                is_up.set()
        is_up.set()

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    with started as process:
        try:
            assert is_up.wait(UP_S), told
            assert process.poll() is None, told
            yield Api(port, sandbox.airflow_home / "passwords.json")
        finally:
            process.terminate()
            process.wait()
            listener.join()


def await_dag(api: Api) -> None:
    deadline = time.monotonic() + 90
    while "deepspark_train" not in {dag["dag_id"] for dag in api.call("GET", "/dags")["dags"]}:
        assert time.monotonic() < deadline, "deepspark_train did not appear"
        time.sleep(0.5)


def log_in(page: Page, api: Api, url: str) -> None:
    """Open a page without a login, log in where it leads, and be back on it."""
    page.goto(url)
    page.fill("input[name=username]", USER)
    page.fill("input[name=password]", api.password)
    page.click("button[type=submit]")
    page.wait_until(f"location.href.includes('/training') && {STATE} !== ''")


def test_a_run_is_watched_from_its_first_task_to_its_report(sandbox: Sandbox) -> None:
    port = free_port()
    site = f"http://127.0.0.1:{port}"
    with airflow_ui(sandbox, port) as api, browser_page() as page:
        await_dag(api)
        conf = sandbox.conf(overrides="max_iter: 8000 display: 20 test_interval: 200 snapshot: 1000")
        body = {"logical_date": None, "conf": conf}
        run_id = api.call("POST", "/dags/deepspark_train/dagRuns", body)["dag_run_id"]
        url = site + run_url("deepspark_train", run_id, "training")

        log_in(page, api, url)
        page.wait_until(f"{STATE} === 'waiting'")
        assert "waits for task" in page.text()
        page.wait_until(f"{STATE} === 'running' && {TRACES} === 4", RUN_S)
        clock = page.evaluate(CLOCK)
        page.wait_until(f"{CLOCK} > {clock}")  # by itself
        assert_log_is_served(api, run_id)
        assert_looks(page)
        assert_keys(page)

        task = f"{site}/dags/deepspark_train/runs/{quoted(run_id)}/tasks/train"
        page.goto(f"{task}/plugin/deepspark-training-task-instance")
        page.wait_until("document.querySelector('iframe')?.contentDocument?.querySelector('h1') != null")
        page.goto(f"{task}/details")
        page.wait_until(
            "[...document.querySelectorAll('a[href$=\"/training\"]')].some(a => a.innerText === 'Training')"
        )

        page.goto(url.replace("/training", "/report"))  # the report takes the page's place by itself
        page.wait_until("document.body.innerText.includes('Confusion matrix')", RUN_S)
        page.goto(url)
        page.wait_until(f"{STATE} === 'finished' && document.body.innerText.includes('export: success')", RUN_S)
        assert_stops_asking(page)
        assert page.troubles == []


def assert_log_is_served(api: Api, run_id: str) -> None:
    path = f"/dags/deepspark_train/dagRuns/{quoted(run_id)}/taskInstances/train/logs/1"
    lines = [str(entry.get("event")) for entry in api.call("GET", path)["content"]]
    assert not [line for line in lines if "Could not read served logs" in line]
    reports = [line for line in lines if re.match(r"worker \d+ loss", line)]
    assert reports
    assert len(reports) == len(set(reports))  # read from the file and from the server, each line once


def assert_looks(page: Page) -> None:
    def background() -> Any:
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    light = background()
    page.prefer("dark")
    page.wait_until("document.documentElement.dataset.theme === 'dark'")
    assert background() != light
    page.prefer("light")
    page.resize(390, 844)
    page.wait_until("window.innerWidth === 390")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.resize(1280, 900)


def assert_keys(page: Page) -> None:
    page.evaluate("document.querySelector('.plot').focus()")
    before = page.evaluate(RANGES)
    page.press("+")
    page.wait_until(f"{RANGES} !== {before!r}")
    page.wait_until(f"new Set(JSON.parse({RANGES}).map(String)).size === 1")  # zoom in one zooms all
    page.press("ArrowRight")
    page.wait_until("document.querySelectorAll('.hoverlayer .hovertext, .hoverlayer .legend').length >= 2")
    page.press("Home")


def assert_stops_asking(page: Page) -> None:
    """Wait until the page has not asked for five seconds, more than two of its turns."""
    count = "performance.getEntriesByType('resource').filter(entry => entry.name.includes('format=json')).length"
    page.wait_until(f"{count} >= 1")
    page.wait_until(f"(n => new Promise(done => setTimeout(() => done({count} === n), 5000)))({count})")
