"""The trigger form of deepspark_train in a real browser: parts, a wrong value, and a started run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from urllib.parse import unquote

import pytest

from deepspark_ops.config.example_conf import example_conf
from deepspark_ops.operators.pages.addresses import RUNS_URL
from tests.browser import Page, browser_page
from tests.e2e.airflow_instance import AirflowInstance, DagRun, log_in
from tests.e2e.small_example import SmallExample
from tests.paths import ROOT

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.browser]

DAG = "deepspark_train"
FORM = "document.querySelector('[role=dialog][data-state=open]')"
PARTS = f"[...{FORM}.querySelectorAll('button[aria-expanded]')].map(b => [b.innerText.trim(), b.ariaExpanded])"
SIDES = (("x", "width"), ("y", "height"))
START = f"[...{FORM}.querySelectorAll('button')].find(button => button.innerText.trim() === 'Trigger')"


@pytest.fixture
def page(airflow: AirflowInstance) -> Iterator[Page]:
    """A page of the user who may trigger; its console must stay free of errors."""
    with browser_page() as page:
        log_in(page, airflow, airflow.site + RUNS_URL, user="user")
        yield page
        assert page.troubles == []


def open_form(page: Page, airflow: AirflowInstance) -> None:
    page.goto(f"{airflow.site}/dags/{DAG}")
    button = "[...document.querySelectorAll('button')].find(button => button.innerText.trim() === 'Trigger')"
    page.wait_until(f"{button} && ({button}.click(), true)")
    page.wait_until(f"{FORM} && {FORM}.querySelector('[name=element_solver]') && {PARTS}.length")


def start_run(page: Page, airflow: AirflowInstance, **values: str) -> DagRun:
    """Fill the form in, press its button, and return the run of the page that opens."""
    for name, value in values.items():
        page.fill(f"[role=dialog] [name=element_{name}]", value)
    page.wait_until(f"{START} && !{START}.disabled && ({START}.click(), true)")
    page.wait_until("location.pathname.includes('/runs/')")
    run_id = unquote(str(page.evaluate("location.pathname.split('/runs/')[1].split('/')[0]")))
    return DagRun(airflow, DAG, run_id)


def test_the_basic_part_is_open_and_a_run_starts_from_it(
    page: Page, airflow: AirflowInstance, example: SmallExample
) -> None:
    open_form(page, airflow)
    parts = page.evaluate(PARTS)
    assert parts == [
        ["Run Parameters", "true"],
        *(
            [part, "false"]
            for part in (
                "Ingest",
                "Train, expert",
                "Ingest, expert",
                "Evaluate, expert",
                "Export, expert",
                "Spark, expert",
            )
        ),
        ["Advanced Options", "false"],
    ]
    page.fill("[role=dialog] [name=element_solver]", example.conf()["solver"])
    page.fill("[role=dialog] [name=element_overrides]", "max_iter: 20")
    page.fill("[role=dialog] [name=element_comm_period]", "1@0 5@10")
    open_part(page, "Ingest")
    run = start_run(page, airflow, source=example.conf()["source"])
    run.leave_out("ingest")  # what follows is as in any run
    ended_run = run.wait()
    assert run.task_states()["check"] == "success"
    assert (ended_run["conf"]["overrides"], ended_run["conf"]["comm_period"]) == ("max_iter: 20", "1@0 5@10")
    assert ended_run["triggering_user_name"] == "user"


def test_a_wrong_value_is_refused_with_a_sentence(page: Page, airflow: AirflowInstance, example: SmallExample) -> None:
    open_form(page, airflow)
    page.fill("[role=dialog] [name=element_solver]", "")
    page.wait_until(f"{START}.disabled")  # what the form itself can refuse
    run = start_run(page, airflow, solver=example.conf()["solver"], comm_period="sometimes")
    run.wait("failed")  # what its widgets hide, the first task says
    page.goto(run.page("training"))
    page.wait_until("document.querySelector('.state') && document.body.innerText.includes('Task check failed')")
    text = page.text()
    assert "auto, a whole number, or a schedule like 1@0 10@2000" in text
    assert "^" not in text


def test_the_example_is_run_by_pasting_the_conf_of_the_dags_documentation(page: Page, airflow: AirflowInstance) -> None:
    page.resize(1280, 1700)
    open_form(page, airflow)
    page.wait_until(f"{START}.disabled")  # the form itself has no example, and no default for the solver
    open_part(page, "Advanced Options")
    editor = f"{FORM}.querySelector('.monaco-editor')"
    page.wait_until(f"{editor}?.querySelector('.view-lines')?.getBoundingClientRect().height > 0")
    has_focus = "document.activeElement.closest('.monaco-editor') !== null"
    for _ in range(60):  # an editor that is still laid out takes no focus: a person presses again
        press_mouse(page, editor, most=100)  # right of the line numbers; its lines are higher than the part in sight
        if page.evaluate(has_focus):
            break
        time.sleep(0.5)
    page.wait_until(has_focus)
    for kind in ("keyDown", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key="a", code="KeyA", modifiers=2, windowsVirtualKeyCode=65)
    conf = example_conf(DAG, ROOT)
    paste = "new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true})"
    page.evaluate(
        f"(() => {{ const data = new DataTransfer(); data.setData('text/plain', {json.dumps(json.dumps(conf))});"
        f" document.activeElement.dispatchEvent({paste}) }})()"
    )
    # The form takes the text when the editor loses the focus, but the text of its last render: a person is slower.
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    press_mouse(page, f"{FORM}.querySelector('h1, h2, h3')")
    page.wait_until("document.activeElement.closest('.monaco-editor') === null")
    run = start_run(page, airflow)
    assert run.read()["conf"] == conf
    run.leave_out("ingest")  # what follows is the demo's
    run.wait()
    assert run.task_states()["check"] == "success"


def open_part(page: Page, name: str) -> None:
    """Open a part of the form that is closed."""
    page.wait_until(f"{PARTS}.some(([name]) => name === {name!r})")
    press_mouse(page, f"[...{FORM}.querySelectorAll('button')].find(b => b.innerText.trim() === {name!r})")
    page.wait_until(f"{PARTS}.some(([name, isOpen]) => name === {name!r} && isOpen === 'true')")


def press_mouse(page: Page, element: str, *, most: int = 12) -> None:
    """Press the mouse on an element; the element's own click does nothing in a part of the form or in an editor.

    Press in the element's middle, but at most some pixels from the upper left corner.
    """
    page.evaluate(f"{element}.scrollIntoView({{block: 'center'}})")
    box = f"{element}.getBoundingClientRect()"
    x, y = (float(page.evaluate(f"{box}.{start} + Math.min({box}.{size} / 2, {most})")) for start, size in SIDES)
    for kind in ("mousePressed", "mouseReleased"):
        page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
