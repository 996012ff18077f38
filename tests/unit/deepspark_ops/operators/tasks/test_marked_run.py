"""A run that a person marked as failed has a last task that failed, by which Airflow's scheduler judges the run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from airflow.models.dagrun import DagRun, DagRunNote
from airflow.models.taskinstance import TaskInstance
from airflow.models.tasklog import LogTemplate
from airflow.models.trigger import Trigger
from sqlalchemy import create_engine, insert, select
from sqlalchemy.orm import Session

from deepspark_ops.operators.tasks import marked_run

pytestmark = pytest.mark.airflow


@pytest.fixture
def session() -> Iterator[Session]:
    engine = create_engine("sqlite://")
    for model in (LogTemplate, DagRun, DagRunNote, Trigger, TaskInstance):
        model.__table__.create(engine)
    with Session(engine) as session:
        yield session
    engine.dispose()


def states_after(session: Session, tasks: dict[str, tuple[str, int]], operator: str | None) -> dict[str, str]:
    """Return the states of tasks, name -> (state, tries), after the run's mark; ``train`` is before the others."""
    run = DagRun(dag_id="d", run_id="r", run_type="manual", run_after=datetime.now(UTC), state="failed")
    session.add(run)
    session.flush()
    columns = set(TaskInstance.__table__.columns.keys())
    for name, (state, tries) in tasks.items():
        values = {
            "dag_id": "d", "run_id": "r", "task_id": name, "map_index": -1, "state": state, "try_number": tries,
            "pool": "default_pool", "pool_slots": 1, "max_tries": 0, "priority_weight": 1, "queue": "q",
            "operator": operator or "DeepSparkTrainOperator", "custom_operator_name": "", "executor_config": {},
        }  # fmt: skip
        present = {key: value for key, value in values.items() if key in columns}
        session.execute(insert(TaskInstance.__table__).values(present))
    last_tasks = set(tasks) - {"train"}
    if operator is not None:
        dag_tasks = [
            SimpleNamespace(
                task_id=name, task_type=operator, downstream_task_ids=last_tasks if name == "train" else set()
            )
            for name in tasks
        ]
        run.dag = SimpleNamespace(tasks=dag_tasks)
    marked_run.on_dag_run_failed(dag_run=run, msg="")
    session.commit()
    rows = session.execute(select(TaskInstance.task_id, TaskInstance.state)).all()
    return {task: str(state) for task, state in rows}


@pytest.mark.parametrize(
    ("tasks", "operator", "changed"),
    [
        # Marked before the first task, and in the middle of the training.
        ({"train": ("skipped", 0), "export": ("skipped", 0)}, "DeepSparkTrainOperator", {"export": "failed"}),
        ({"train": ("failed", 1), "export": ("skipped", 0)}, "DeepSparkTrainOperator", {"export": "failed"}),
        # Failed by themselves: another last task failed, or the task after the failed one.
        ({"train": ("success", 1), "export": ("failed", 1), "report": ("skipped", 0)}, "DeepSparkTrainOperator", {}),
        ({"train": ("failed", 1), "export": ("upstream_failed", 0)}, "DeepSparkTrainOperator", {}),
        # A last task that skipped itself ran; runs of other DAGs, and runs without a DAG, stay as they are.
        ({"train": ("failed", 1), "export": ("skipped", 1)}, "DeepSparkTrainOperator", {}),
        ({"train": ("skipped", 0), "export": ("skipped", 0)}, "BashOperator", {}),
        ({"train": ("skipped", 0), "export": ("skipped", 0)}, None, {}),
    ],
)
def test_a_marked_run_has_a_failed_last_task(session, tasks, operator, changed) -> None:
    expected = {name: state for name, (state, _) in tasks.items()} | changed
    assert states_after(session, tasks, operator) == expected
