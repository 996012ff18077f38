"""Pages read Airflow's tables, filled by Airflow's own models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, delete, insert
from sqlalchemy.event import listen
from sqlalchemy.orm import Session

from deepspark_ops.operators.dags import deepspark_retrain, deepspark_train
from deepspark_ops.operators.pages.lists import airflow_runs
from deepspark_ops.run_index.schedule import BY_HAND, Schedule

pytestmark = pytest.mark.airflow


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """Airflow's tables of DAGs in memory; what the pages read is what is in them."""
    from airflow.models.base import Base
    from airflow.models.dag import DagModel
    from airflow.models.dagrun import DagRun, DagRunNote
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.tasklog import LogTemplate
    from airflow.models.trigger import Trigger

    engine = create_engine("sqlite://")
    models = (DagModel, SerializedDagModel, LogTemplate, DagRun, DagRunNote, Trigger, TaskInstance)
    Base.metadata.create_all(engine, tables=[model.__table__ for model in models])
    with Session(engine) as open_session:

        @contextmanager
        def same_session() -> Iterator[Session]:
            yield open_session

        monkeypatch.setattr(airflow_runs, "create_session", same_session)
        yield open_session


def test_schedules_are_read_as_airflow_keeps_them(session: Session) -> None:
    from airflow.models.dag import DagModel
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.serialization import serialized_objects

    names = vars(serialized_objects)
    serialization = names.get("DagSerialization") or names["SerializedDAG"]  # the latter until Airflow 3.1
    next_run = datetime(2026, 11, 23, 3, tzinfo=UTC)
    for dag in (deepspark_retrain.make_dag(), deepspark_train.make_dag()):
        serialized = serialization.to_dict(dag)
        timetable = serialization.from_dict(serialized).timetable
        is_timed = dag.dag_id == "deepspark_retrain"
        assets = timetable.asset_condition.as_expression() if is_timed else None
        session.add(
            DagModel(
                dag_id=dag.dag_id, bundle_name="dags-folder", fileloc="x", is_stale=False, is_paused=is_timed,
                timetable_description=timetable.description, asset_expression=assets,
                next_dagrun_create_after=next_run if is_timed else None,
            )
        )  # fmt: skip
        values = {"id": uuid4(), "dag_id": dag.dag_id, "dag_hash": "1", "dag_version_id": uuid4(), "data": serialized}
        session.execute(insert(SerializedDagModel.__table__).values(**values))
    session.add(DagModel(dag_id="gone", bundle_name="dags-folder", fileloc="x", is_stale=True, is_paused=False))
    session.flush()
    schedules = airflow_runs.read_schedules(["deepspark_retrain", "deepspark_train", "gone", "missing"])
    words = "03:00 UTC every day, or when deepspark_dataset is updated"
    assert schedules == [
        Schedule("deepspark_retrain", words, next_run.timestamp(), is_paused=True),
        Schedule("deepspark_train", BY_HAND, None, is_paused=False),
    ]
    assert airflow_runs.read_schedules([]) == []


def test_runs_are_read_newest_first_with_solver_and_strategy_of_the_form(session: Session) -> None:
    from airflow.models.dagrun import DagRun

    confs = [{"solver": "nets/a_solver.prototxt", "strategy": "sync"}, None, {"solver": 3}]
    for number, conf in enumerate(confs):
        moment = datetime(2026, 11, 23, number, tzinfo=UTC)
        session.add(
            DagRun(dag_id="d", run_id=f"r{number}", run_type="manual", run_after=moment, state="failed", conf=conf)
        )
    session.add(DagRun(dag_id="other", run_id="r", run_type="manual", run_after=moment))
    session.flush()
    runs = airflow_runs.RunRows().read(["d"])
    assert [(run.run, run.state, run.kind) for run in runs] == [(f"r{n}", "failed", "manual") for n in (2, 1, 0)]
    assert [(run.solver, run.strategy) for run in runs] == [(None, None), (None, None), ("a_solver.prototxt", "sync")]


def test_the_note_of_a_run_is_airflows(session: Session) -> None:
    from airflow.models.dagrun import DagRun

    moment = datetime(2026, 11, 23, tzinfo=UTC)
    noted, plain = (
        DagRun(dag_id="d", run_id=name, run_type="manual", run_after=moment, state="success")
        for name in ("noted", "plain")
    )
    session.add_all([noted, plain])
    noted.note = "diverged after 3,000"
    session.flush()
    for run_id, note in (("noted", "diverged after 3,000"), ("plain", "")):
        run = airflow_runs.read_run("d", run_id)
        assert run is not None
        assert (run.state, run.note) == ("success", note)
    assert airflow_runs.read_run("d", "none") is None


def add_task(session: Session, **fields: Any) -> None:
    """Add a task of a run of DAG ``d`` to the database."""
    from airflow.models.taskinstance import TaskInstance

    values = {
        "dag_id": "d", "map_index": -1, "operator": "DeepSparkCheckOperator", "pool": "default_pool", "pool_slots": 1,
        "try_number": 1, "max_tries": 0, "priority_weight": 1, "queue": "q", "custom_operator_name": "",
        "executor_config": {},
    } | fields  # fmt: skip
    columns = set(TaskInstance.__table__.columns.keys())
    session.execute(
        insert(TaskInstance.__table__).values({key: value for key, value in values.items() if key in columns})
    )


def test_a_failed_run_has_its_failed_task_and_a_task_that_a_person_marked_does_not_count(session: Session) -> None:
    from airflow.models.dagrun import DagRun

    moment = datetime(2026, 11, 23, tzinfo=UTC)
    states = {"killed": "failed", "stopped": "failed", "goes_on": "running"}
    for run, state in states.items():
        session.add(DagRun(dag_id="d", run_id=run, run_type="manual", run_after=moment, state=state))
    session.flush()
    add_task(session, run_id="killed", task_id="check", state="failed")
    add_task(session, run_id="killed", task_id="train", state="upstream_failed", try_number=0)
    add_task(session, run_id="stopped", task_id="export", state="failed", try_number=0)
    add_task(session, run_id="goes_on", task_id="check", state="failed")
    runs = {run.run: run.failed_task for run in airflow_runs.RunRows().read(["d"])}
    assert runs == {"killed": "check", "stopped": None, "goes_on": None}


@pytest.mark.parametrize(
    ("operators", "work"),
    [
        (["DeepSparkEvaluateOperator", "PythonOperator"], "evaluate"),
        (["DeepSparkPredictOperator", "DeepSparkIngestOperator"], "predict"),
        (["DeepSparkTrainOperator", "DeepSparkEvaluateOperator"], "training"),
        (["DeepSparkCheckOperator"], None),
        (["PythonOperator"], None),
    ],
)
def test_a_run_has_the_work_of_its_operators(session: Session, operators: list[str], work: str | None) -> None:
    from airflow.models.dagrun import DagRun

    moment = datetime(2026, 11, 23, tzinfo=UTC)
    session.add(DagRun(dag_id="d", run_id="r", run_type="manual", run_after=moment, state="queued"))
    session.flush()
    for number, operator in enumerate(operators):
        add_task(session, run_id="r", task_id=f"t{number}", operator=operator)
    assert [run.work for run in airflow_runs.RunRows().read(["d"])] == [work]


def test_tasks_have_the_stage_of_their_operator_and_a_part_of_a_dag_run_is_found_by_its_first_task(
    session: Session,
) -> None:
    from airflow.models.dagrun import DagRun

    moment = datetime(2026, 11, 23, tzinfo=UTC)
    session.add(DagRun(dag_id="d", run_id="m__1", run_type="manual", run_after=moment, state="running"))
    session.flush()
    rows = [
        ("fit", -1, "DeepSparkTrainOperator", "success"), ("mail", -1, "PythonOperator", None),
        ("each", 0, "DeepSparkTrainOperator", "failed"), ("each", 1, "DeepSparkTrainOperator", "success"),
    ]  # fmt: skip
    for task, index, operator, state in rows:
        add_task(session, run_id="m__1", task_id=task, map_index=index, operator=operator, state=state)
    run = airflow_runs.read_run("d", "m__1")
    assert run is not None
    stages = {name: (task.stage, task.state) for name, task in run.tasks.items()}
    assert stages == {"fit": ("train", "success"), "mail": ("", None), "each": ("train", "failed")}
    assert (run.dag_run, run.first_task) == ("m__1", "")
    names = ("fit", "each_0", "each_1", "none", "each_7")
    parts = {name: airflow_runs.read_run("d", f"m__1__{name}") for name in names}
    assert {name: part and (part.dag_run, part.first_task) for name, part in parts.items()} == {
        "fit": ("m__1", "fit"), "each_0": ("m__1", "each"), "each_1": ("m__1", "each"), "none": None, "each_7": None,
    }  # fmt: skip
    assert [parts[name].tasks["each"].state for name in ("each_0", "each_1")] == ["failed", "success"]  # type: ignore[union-attr]


def test_forms_of_finished_runs_are_read_once_and_changes_of_state_and_note_are_seen(session: Session) -> None:
    from airflow.models.dagrun import DagRun

    moment = datetime(2026, 11, 23, tzinfo=UTC)
    rows = [
        DagRun(
            dag_id="d", run_id=f"r{number}", run_type="manual", run_after=moment, state=state, conf={"strategy": "sync"}
        )
        for number, state in enumerate(["success", "running"] * 600)
    ]
    session.add_all(rows)
    session.flush()
    statements: list[str] = []
    listen(session.get_bind(), "before_cursor_execute", lambda *call: statements.append(call[2]))
    runs = airflow_runs.RunRows()
    first = runs.read(["d"])
    assert {(run.state, run.strategy, run.note) for run in first} == {("success", "sync", ""), ("running", "sync", "")}
    assert len(first) == 1200
    assert sum("dag_run.conf" in text for text in statements) == 3  # 500 keys at once
    for row in rows[1::2]:
        row.state = "failed"
    session.flush()
    assert {run.state for run in runs.read(["d"])} == {"success", "failed"}
    statements.clear()
    assert runs.read(["d"]) == runs.read(["d"])
    assert not any("dag_run.conf" in text for text in statements)
    rows[0].note = "look"
    rows[2].state = "running"
    session.flush()
    session.execute(delete(DagRun).where(DagRun.id == rows[4].id))
    changed = {run.run: run for run in runs.read(["d"])}
    assert (changed["r0"].note, changed["r2"].state, len(changed)) == ("look", "running", 1199)
