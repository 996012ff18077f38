"""The trigger form of deepspark_train in a real browser: its parts, a value that is wrong, and a run that it starts."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

import pytest

from deepspark_ops.operators.pages.addresses import RUNS_URL
from tests.browser import Page, browser_page
from tests.e2e.airflow_instance import AirflowInstance, DagRun, log_in
from tests.e2e.small_example import SmallExample

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.browser]

DAG = "deepspark_train"
FORM = "document.querySelector('[role=dialog][data-state=open]')"
PARTS = f"[...{FORM}.querySelectorAll('button[aria-expanded]')].map(b => [b.innerText.trim(), b.ariaExpanded])"
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


def start(page: Page, airflow: AirflowInstance, **values: str) -> DagRun:
    """Fill the form in, press its button, and return the run on whose page one is then."""
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
            for part in ("Ingest", "Train, expert", "Ingest, expert", "Evaluate, expert", "Export, expert")
        ),
        ["Advanced Options", "false"],
    ]
    run = start(page, airflow, solver=example.conf()["solver"], overrides="max_iter: 20", comm_period="1@0 5@10")
    run.leave_out("ingest")  # what follows is as in any run
    done = run.wait()
    assert run.task_states()["check"] == "success"
    assert (done["conf"]["overrides"], done["conf"]["comm_period"]) == ("max_iter: 20", "1@0 5@10")
    assert done["triggering_user_name"] == "user"


def test_a_wrong_value_is_refused_with_a_sentence(page: Page, airflow: AirflowInstance, example: SmallExample) -> None:
    open_form(page, airflow)
    page.fill("[role=dialog] [name=element_solver]", "")
    page.wait_until(f"{START}.disabled")  # what the form itself can refuse
    run = start(page, airflow, solver=example.conf()["solver"], comm_period="sometimes")
    run.wait("failed")  # what its widgets hide, the first task says
    page.goto(run.page("training"))
    page.wait_until("document.querySelector('.state') && document.body.innerText.includes('Task check failed')")
    text = page.text()
    assert "auto, a whole number, or a schedule like 1@0 10@2000" in text
    assert "^" not in text
