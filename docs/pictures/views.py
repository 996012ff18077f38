"""The view of each picture: a page, its size and the position of the scroll."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import cv2
import numpy as np

from deepspark_ops.local_airflow.api import quoted
from deepspark_ops.operators.pages.addresses import MODELS_URL, RUNS_URL, answer_url
from docs.pictures import example_runs as runs
from tests.browser import Page
from tests.e2e.airflow_instance import AirflowInstance
from tests.e2e.looks import FITS, TRACES
from tests.e2e.small_example import DIGITS, IMAGES, IMAGES_HEADER

_FORM = "document.querySelector('[role=dialog][data-state=open]')"
_TRIGGER = "[...document.querySelectorAll('button')].find((button) => button.innerText.trim() === 'Trigger')"
_WORKERS_PART = "[...document.querySelectorAll('*')].findLast((part) => /^\\W*workers$/.test(part.innerText ?? ''))"
"""Airflow folds the parts of a log."""
_SIDE = 8
_SEVEN = 7
"""Index of a sample that is a seven."""
_SERVED_PX = 112


@dataclass(frozen=True)
class View:
    """A picture.

    Attributes:
        show: Brings the page to where the picture is taken.
        width: Of the window in CSS pixels.
        height: Likewise.
    """

    show: Callable[[Page, AirflowInstance], None]
    width: int = 1280
    height: int = 860


def show_training(page: Page, airflow: AirflowInstance) -> None:
    """Show the page Training of the finished run."""
    page.goto(runs.trained(airflow).page("training"))
    page.wait_until(f"{TRACES} === 4 && {FITS}")


def show_form(page: Page, airflow: AirflowInstance) -> None:
    """Show the form of deepspark_train with the solver of the example."""
    page.goto(f"{airflow.site}/dags/deepspark_train")
    page.wait_until(f"{_TRIGGER} && ({_TRIGGER}.click(), true)")
    page.wait_until(f"{_FORM} && {_FORM}.querySelector('[name=element_solver]')")
    page.fill("[role=dialog] [name=element_solver]", "examples/digits/lenet_solver.prototxt")
    page.evaluate("document.activeElement.blur()")


def show_task_log(page: Page, airflow: AirflowInstance) -> None:
    """Show the log of the task train on Airflow's page."""
    run = runs.trained(airflow)
    page.goto(f"{airflow.site}/dags/{run.dag_id}/runs/{quoted(run.run_id)}/tasks/train")
    page.wait_until(f"{_WORKERS_PART} && ({_WORKERS_PART}.click(), true)")
    page.wait_until("document.body.innerText.includes('loss clock=')")


def show_report(page: Page, airflow: AirflowInstance) -> None:
    """Show the first screen of the report."""
    page.goto((runs.trained(airflow).folder / "evaluation" / "report.html").as_uri())


def show_report_curves(page: Page, airflow: AirflowInstance) -> None:
    """Show the curves of the report."""
    show_report(page, airflow)
    page.evaluate(
        "[...document.querySelectorAll('h2')].find((title) => title.innerText === 'Training').scrollIntoView()"
    )


def show_model(page: Page, airflow: AirflowInstance) -> None:
    """Show a model of two versions."""
    page.goto(f"{airflow.site}{MODELS_URL}/{runs.promoted_model(airflow)}")


def show_approval(page: Page, airflow: AirflowInstance) -> None:
    """Show the comparison that a person approves on Airflow's page."""
    run = runs.waiting_for_approval(airflow)
    page.goto(airflow.site + answer_url(run.dag_id, run.run_id, "approve"))
    page.wait_until("document.querySelector('[data-testid=hitl-option-Approve]') !== null")


def show_comparison(page: Page, airflow: AirflowInstance) -> None:
    """Show the report of the comparison."""
    page.goto((runs.compared(airflow).folder / "evaluation" / "report.html").as_uri())


def show_runs(page: Page, airflow: AirflowInstance) -> None:
    """Show the list of runs."""
    for make in (runs.trained, runs.refused, runs.promoted_model, runs.compared, runs.waiting_for_approval):
        make(airflow)
    page.goto(f"{airflow.site}{RUNS_URL}?work=all")
    page.wait_until("document.readyState === 'complete'")


def show_served(page: Page, airflow: AirflowInstance) -> None:
    """Show the page of ``deepspark serve`` after a picture of a digit, with the pixels that raise the score."""
    pixels = np.frombuffer(gzip.decompress((DIGITS / IMAGES).read_bytes()), np.uint8, offset=IMAGES_HEADER)
    digit = pixels.reshape(-1, _SIDE, _SIDE)[_SEVEN] * np.uint8(15)
    with (
        tempfile.TemporaryDirectory() as folder,
        runs.running_server(airflow, runs.trained(airflow).folder / "bundle") as address,
    ):
        path = Path(folder, "seven.png")
        cv2.imwrite(str(path), cv2.resize(digit, (_SERVED_PX, _SERVED_PX), interpolation=cv2.INTER_CUBIC))
        page.goto(address)
        page.wait_until("!document.getElementById('ask').hidden")
        page.attach("#picture", path)
        page.wait_until("!document.getElementById('result').hidden")
        page.click("button[data-method=gradient]")
        page.wait_until("!document.getElementById('map').hidden && document.getElementById('map_picture').complete")


VIEWS: Final[dict[str, View]] = {
    "training": View(show_training, height=1000),
    "form": View(show_form),
    "task_log": View(show_task_log, height=600),
    "report": View(show_report, 900, 1300),
    "report_curves": View(show_report_curves, 900, 1210),
    "model": View(show_model, height=900),
    "approval": View(show_approval, 1280, 1130),
    "comparing": View(show_comparison, 1000, 1180),
    "runs": View(show_runs, height=900),
    "serve": View(show_served, 560, 1190),
}
"""Name of the file in docs/images -> what it shows."""
