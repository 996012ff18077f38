"""A person approves a new model on Airflow's page Required Actions, with a real login in a real browser."""

from __future__ import annotations

import json

import pytest

from deepspark_ops.operators.pages.addresses import RUNS_URL, answer_url
from tests.browser import Page, browser_page
from tests.e2e.airflow_instance import AirflowInstance, DagRun, log_in
from tests.e2e.looks import assert_looks, keep_picture
from tests.e2e.small_example import SmallExample

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.tf, pytest.mark.slow, pytest.mark.browser]

DAG = "deepspark_retrain"
FIGURES = {"classification": "accuracy (95 % interval)", "reconstruction": "Mean squared error"}
"""Task of a net -> what it is judged by, on Airflow's page."""
BUTTON = "document.querySelector('[data-testid=hitl-option-{}]')"


def test_a_person_reads_the_comparison_approves_and_the_version_is_promoted(
    airflow: AirflowInstance, example: SmallExample
) -> None:
    run = waiting_run(airflow, example)
    with browser_page() as page:
        log_in(page, airflow, run.page("training"))
        page.troubles.clear()
        page.wait_until("document.body.innerText.includes('waits for approval')")
        assert_looks(page, "approval-training")
        page.goto(airflow.site + RUNS_URL)
        link = f"a.state[href='{answer_url(run.dag_id, run.run_id, 'approve')}']"
        page.wait_until(f"document.querySelector({json.dumps(link)}).innerText === 'waits for approval'")
        assert_looks(page, "approval-runs")
        page.click(link)
        task = json.loads((run.folder / "evaluation" / "metrics.json").read_text())["task"]
        answer(page, "Approve", "looks right", figure=FIGURES[task])
        assert page.troubles == []
    note = run.wait()["note"]
    assert note.endswith("; approved by admin (looks right)")
    decision = json.loads((run.folder / "decision.json").read_text())
    pointers = [json.loads(path.read_text()) for path in (airflow.home / "models").glob("*/production.json")]
    assert [(pointer["who"], pointer["reason"]) for pointer in pointers if pointer["decision"] == decision] == [
        ("admin", note)
    ]


def waiting_run(airflow: AirflowInstance, example: SmallExample) -> DagRun:
    """Return a run that waits for approval: the session's scheduled run, unless another test has answered."""
    airflow.unpause(DAG)
    run = airflow.await_run(DAG, lambda run: run["run_type"] == "scheduled")
    if run.wait_task("approve", "awaiting_input", "success", "skipped") != "awaiting_input":
        asks = {"approval": True, "approval_timeout": "8 min", "n_workers": 1, "model": "approved"}
        run = airflow.trigger(DAG, example.conf(overrides="max_iter: 40", **asks))
        run.wait_task("approve", "awaiting_input")
    return run


def answer(page: Page, option: str, comment: str, *, figure: str) -> None:
    page.wait_until(f"{BUTTON.format(option)} !== null")
    text = page.text()
    for passage in ("into production?", figure, "Report", "Training", "or no answer within 8 min"):
        assert passage in text
    assert "| ---" not in text  # a table, not its source
    keep_picture(page, "approval-action.png")
    page.fill("[name=element_comment]", comment)
    page.click(f"[data-testid=hitl-option-{option}]")
    page.wait_until("document.body.innerText.includes('Response received at')")
