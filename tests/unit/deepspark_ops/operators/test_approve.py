"""Task approve: the question, the effect of each answer, and the effect on promote; without Airflow's own part."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.standard.operators import hitl
from airflow.sdk import DAG

from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.promote import ApprovalConfig, PromoteConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.operators import approve as approve_module
from deepspark_ops.operators import check as check_module
from deepspark_ops.operators import promote as promote_module
from deepspark_ops.operators.approve import DeepSparkApproveOperator
from deepspark_ops.operators.check import DeepSparkCheckOperator
from deepspark_ops.operators.form import form_params
from deepspark_ops.operators.provider.airflow_names import (
    WAITS,
    AirflowFailException,
    AirflowSkipException,
    TaskDeferred,
)
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.registry.gate import decide
from deepspark_ops.registry.overview import read_model
from deepspark_ops.run_view.stage_status import read_statuses
from tests.reference.evaluations import evaluation
from tests.unit.deepspark_ops.operators.operator_calls import Retraining, context, execute, operator_of, rendered

pytestmark = pytest.mark.airflow

FIGURES = "+9.0 points on 100 samples, p = 0.002"
AT = datetime(2026, 11, 22, 12, 0, 0, 5, tzinfo=UTC)


class Asking(Retraining):
    """A retraining whose candidate is better, up to its task approve; what Airflow would do is noted instead."""

    def __init__(self, locations: Places, dag: DAG, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(locations, dag)
        self.question: dict[str, Any] = {}
        self.skipped: list[str] = []
        self.notices: list[tuple[str, str, str]] = []
        self.conf = {"approval": True, "approval_timeout": "90 min"}
        self.scored(0)
        self.report = self.run.run_dir / "evaluation" / "report.html"
        self.report.write_text("<!-- decision --><!-- end of decision -->")
        monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **fields: self.question.update(fields))
        for module in (approve_module, promote_module):
            monkeypatch.setattr(module, "notify", self._notify)
        monkeypatch.setattr(
            DeepSparkApproveOperator, "skip", lambda _, ti, tasks: self.skipped.extend(task.task_id for task in tasks)
        )
        self.operator = operator_of(DeepSparkApproveOperator, dag, locations)
        self.operator >> hitl.HITLEntryOperator(task_id="after", subject="stands for promote", dag=dag)
        self.decide()

    def _notify(self, context: Any, event: str, reason: str, page: str = "report") -> None:
        self.notices.append((event, reason, page))

    def ask(self) -> timedelta | None:
        values = self.context()
        values["task_instance"] = values["ti"]
        values["ti"].id = "id of the task instance"
        with pytest.raises(WAITS) as waits:
            execute(self.operator, values)
        waiting: Any = waits.value
        if isinstance(waiting, TaskDeferred):  # before Airflow 3.3 the trigger has the end of the time
            time_left = waiting.trigger.timeout_datetime - datetime.now(UTC)
            return timedelta(minutes=round(time_left / timedelta(minutes=1)))
        timeout: timedelta | None = waiting.timeout
        return timeout

    def answer(self, option: str, user: str | None = "anna", comment: str = "") -> dict[str, Any]:
        values = self.context() | {"task": self.operator}
        person = {"id": "7", "name": user} if user else None
        event = {
            "chosen_options": [option],
            "params_input": {"comment": comment},
            "responded_by_user": person,
            "responded_at": AT,
        }
        try:
            return dict(rendered(self.operator, values).execute_complete(values, event))
        finally:
            self.noted = values["pushed"].get("deepspark_decision")

    def decision(self) -> dict[str, Any]:
        decision: dict[str, Any] = json.loads((self.run.run_dir / "decision.json").read_text())
        return decision

    def status(self) -> str:
        return read_statuses(self.run.run_dir)["approve"].status


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Asking]:
    def make_asking() -> Asking:
        params = form_params([("Promote", PromoteConfig), ("Promote", ApprovalConfig)], {})
        with DAG("d", params=params, schedule=None) as dag:
            return Asking(Places(tmp_path, tmp_path / "home"), dag, monkeypatch)

    return make_asking


@pytest.fixture
def asking(make: Callable[[], Asking]) -> Asking:
    return make()


def test_nobody_is_asked_unless_the_run_says_so(asking: Asking) -> None:
    asking.conf = None
    with pytest.raises(AirflowSkipException, match="nobody is asked: approval is off"):
        execute(asking.operator, asking.context())
    assert asking.question == {}
    assert asking.promote()[1]["reason"] == f"promoted: {FIGURES}"
    assert asking.history()[-1] == ("promoted", "v2", "scheduled")


def test_a_person_is_asked_with_the_comparison_and_the_worker_given_back(asking: Asking) -> None:
    assert asking.ask() == timedelta(minutes=90)
    assert asking.question["options"] == ["Approve", "Reject"]
    assert asking.question["defaults"] == ["Reject"]  # what Airflow answers when the time is over
    assert list(asking.question["params"]) == ["comment"]  # not the DAG's whole form
    assert asking.question["subject"] == f"Put a new version of model into production? {FIGURES}"
    body = asking.question["body"]
    figures = ("| 100 samples | new | production (v1) |", "100.0 % [", "91.0 % [", "+9.0 points", "p = 0.002")
    links = ("[Report](/deepspark/runs/d/r/report)", "[Training](/deepspark/runs/d/r/training)")
    assert [part for part in (*figures, *links, "within 90 min") if part not in body] == []
    assert f"Waits for approval: {html.escape(FIGURES)}" in asking.report.read_text()
    assert asking.notices == [("approval", f"waits for approval: {FIGURES}", "answer")]
    assert asking.status() == "waiting"
    assert asking.history()[-1] == ("promoted", "v1", "anna")


def test_who_approved_stands_wherever_the_promotion_does(asking: Asking) -> None:
    asking.ask()
    assert asking.answer("Approve", comment=" looks\nright ") == {
        **asking.run.to_xcom(),
        "approved": True,
        "who": "anna",
        "comment": "looks right",
    }
    assert asking.skipped == []
    reason = f"promoted: {FIGURES}; approved by anna (looks right)"
    assert asking.noted == reason
    assert asking.status() == "finished"
    assert asking.decision()["approval"] == {
        "answer": "approved",
        "who": "anna",
        "at": "2026-11-22T12:00:00+00:00",
        "comment": "looks right",
        "asked": f"promoted: {FIGURES}",
    }
    assert asking.promote()[1]["reason"] == reason
    assert f'<p class="decision promoted">P{html.escape(reason[1:])}</p>' in asking.report.read_text()
    model = read_model(asking.models, "model")
    last = model.history[-1]
    assert (last.action, last.who, last.reason) == ("promoted", "anna", reason)
    assert asking.notices[1:] == [("promoted", f"model model: v2 is in production ({reason})", "report")]


@pytest.mark.parametrize(
    ("user", "comment", "reason", "author"),
    [
        ("anna", "", f"kept production: refused by anna; {FIGURES}", "anna"),
        ("anna", "why", f"kept production: refused by anna (why); {FIGURES}", "anna"),
        (None, "", f"kept production: nobody approved within 90 min; {FIGURES}", "scheduled"),
    ],
)
def test_without_an_approval_production_stays_and_the_run_ends_well(
    asking: Asking, user: str | None, comment: str, reason: str, author: str
) -> None:
    asking.ask()
    assert asking.answer("Reject", user, comment)["approved"] is False
    assert asking.skipped == ["after"]
    assert asking.noted == reason
    assert asking.decision()["reason"] == reason
    assert f'<p class="decision kept">K{html.escape(reason[1:])}</p>' in asking.report.read_text()
    assert asking.history()[-1] == ("kept", None, author)
    assert asking.notices[1:] == [("kept", reason, "report")]
    with pytest.raises(AirflowSkipException, match="kept production: "):  # cleared and run by itself
        asking.promote()


def test_a_repeated_question_is_unchanged(asking: Asking) -> None:
    asking.ask()
    asking.answer("Reject", comment="not today")
    asking.ask()
    assert asking.question["subject"].endswith(f"? {FIGURES}")
    assert asking.decision()["approval"] is None
    asking.answer("Approve", "berta")
    assert asking.promote()[1]["reason"] == f"promoted: {FIGURES}; approved by berta"


def test_promote_does_not_trust_that_somebody_was_asked(asking: Asking) -> None:
    with pytest.raises(
        AirflowFailException, match=r"asks for approval .* nobody has approved this decision; clear the"
    ):
        asking.promote()
    assert asking.history()[-1] == ("promoted", "v1", "anna")


def test_a_production_that_moved_while_it_waited_is_not_replaced(asking: Asking) -> None:
    asking.ask()
    forced = decide(evaluation([0], [0]), None, PromoteConfig()).model_copy(update={"is_forced": True})
    assert asking.promoted("by-hand", forced) == "v2"
    asking.answer("Approve")
    message = "the candidate was compared with v1, but v2 is in production now"
    with pytest.raises(AirflowFailException, match=message):
        asking.promote()
    assert asking.noted is not None
    assert asking.noted.startswith(f"kept production: {message}")
    assert f"Kept production: {message}" in asking.report.read_text()
    assert read_statuses(asking.run.run_dir)["promote"].message.startswith(message)
    assert asking.history()[-1] == ("promoted", "v2", "anna")


def test_a_run_without_its_decision_says_what_to_clear(asking: Asking) -> None:
    (asking.run.run_dir / "decision.json").unlink()
    with pytest.raises(AirflowFailException, match=r'decision\.json is missing; clear task "decide" of this run'):
        execute(asking.operator, asking.context())


def test_check_refuses_a_wrong_wait_and_warns_of_broken_notifiers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_module, "run_job", lambda *_, **__: None)
    (tmp_path / "s.prototxt").touch()
    sections = [("Train", CheckConfig), ("Train", TrainConfig), ("Promote", PromoteConfig), ("Promote", ApprovalConfig)]
    with DAG("d", params=form_params(sections, {"solver": "s.prototxt"}), schedule=None) as dag:
        check = operator_of(DeepSparkCheckOperator, dag, Places(tmp_path, tmp_path), warm_start=True)
    with pytest.raises(
        AirflowFailException, match=r"^approval_timeout='a day': must be a length of time with its unit"
    ):
        execute(check, context(dag, conf={"approval_timeout": "a day"}))

    monkeypatch.setenv("DEEPSPARK_NOTIFIERS", str(tmp_path / "none.json"))
    execute(check, context(dag))
    ((_, warning),) = read_statuses(tmp_path / "runs" / "d" / "r")["check"].warnings
    assert warning.startswith("notifications do not work: DEEPSPARK_NOTIFIERS=")
    assert "No such file or directory" in warning
