"""The listener writes what task decide left into the run's note, in the session that the scheduler commits."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from airflow.models.dagrun import DagRun, DagRunNote
from airflow.models.taskinstance import TaskInstance
from airflow.models.tasklog import LogTemplate
from airflow.models.trigger import Trigger
from airflow.models.xcom import XComModel
from sqlalchemy import create_engine, event
from sqlalchemy.orm import Session

from deepspark_ops.operators.pages.plugin import DeepSparkPlugin
from deepspark_ops.operators.tasks.run_note import REASON_KEY, on_dag_run_failed, on_dag_run_success

pytestmark = pytest.mark.airflow


@pytest.fixture
def session() -> Iterator[Session]:
    """A database of the tables that take part, without the rest of Airflow's."""
    engine = create_engine("sqlite://")
    for model in (LogTemplate, DagRun, DagRunNote, Trigger, TaskInstance, XComModel):
        model.__table__.create(engine)
    with Session(engine) as session:
        yield session
    engine.dispose()


def run_with(session: Session, *, decision: str | None, note: str | None = None) -> DagRun:
    run = DagRun(dag_id="deepspark_retrain", run_id="r", run_type="manual", run_after=datetime.now(UTC))
    if note is not None:
        run.note = note  # DagRun of Airflow 3.1 takes none
    session.add(run)
    session.flush()
    for key, value in (("return_value", "other"), (REASON_KEY, decision)):
        if value is not None:
            session.add(
                XComModel(
                    dag_run_id=run.id, dag_id=run.dag_id, run_id=run.run_id, task_id="decide", key=key, value=value
                )
            )
    session.flush()
    return run


@pytest.mark.parametrize("ended", [on_dag_run_success, on_dag_run_failed])
@pytest.mark.parametrize(("note", "expected"), [(None, "kept: why"), ("mine", "mine\n\nkept: why")])
def test_note_says_the_decision_below_what_a_person_wrote(session, ended, note, expected) -> None:
    run = run_with(session, decision="kept: why", note=note)
    for _ in range(2):  # a run that is cleared ends again
        ended(dag_run=run, msg="")
    session.commit()
    assert session.get(DagRun, run.id).note == expected


@pytest.mark.parametrize(
    ("operators", "expected"), [(["BashOperator"], None), (["BashOperator", "DeepSparkDecideOperator"], "kept: why")]
)
def test_the_database_is_asked_for_runs_of_dags_with_our_operators_alone(session, operators, expected) -> None:
    run = run_with(session, decision="kept: why")
    run.dag = SimpleNamespace(tasks=[SimpleNamespace(task_type=name) for name in operators])
    queries = []
    event.listen(session.get_bind(), "before_cursor_execute", lambda *call: queries.append(call[2]))
    on_dag_run_success(dag_run=run, msg="")
    assert any("FROM xcom" in query for query in queries) == (expected is not None)
    assert run.note == expected


def test_note_says_what_was_decided_last(session) -> None:
    run = run_with(session, decision="promoted: why")
    fields = {"dag_run_id": run.id, "dag_id": run.dag_id, "run_id": run.run_id, "key": REASON_KEY}
    for task, hours, reason in (("approve", 1, "refused"), ("another", -1, "promoted: earlier")):
        at = datetime.now(UTC) + timedelta(hours=hours)
        session.add(XComModel(**fields, task_id=task, value=reason, timestamp=at))
    session.flush()
    on_dag_run_success(dag_run=run, msg="")
    assert run.note == "refused"


def test_run_without_a_decision_keeps_its_note(session) -> None:
    run = run_with(session, decision=None, note="mine")
    on_dag_run_success(dag_run=run, msg="")
    assert run.note == "mine"


def test_note_fits_into_airflows_column(session) -> None:
    run = run_with(session, decision="x" * 2000)
    on_dag_run_success(dag_run=run, msg="")
    assert run.note == "x" * 1000


def test_plugin_has_the_listeners() -> None:
    names = [listener.__name__ for listener in DeepSparkPlugin.listeners]
    assert names == ["deepspark_ops.operators.tasks.marked_run", "deepspark_ops.operators.tasks.run_note"]
