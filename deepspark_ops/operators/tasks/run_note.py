"""Puts the decision about a run's model into the note of the DAG run, for Airflow's pages.

A task cannot write the note: the tasks' API has no call for notes. A listener of the scheduler can write the note at
the run's end. So the task leaves a sentence as an XCom, and the XCom reaches the scheduler on any machine.
"""

from __future__ import annotations

from typing import Any, Final

from airflow.listeners import hookimpl

REASON_KEY: Final = "deepspark_decision"
"""Key of the XCom that holds the sentence."""
MAX_NOTE: Final = 1000
"""Characters that Airflow keeps of a note."""


@hookimpl  # type: ignore[untyped-decorator]
def on_dag_run_success(dag_run: Any, msg: str) -> None:
    """Note the decision of a successful run."""
    note_decision(dag_run)


@hookimpl  # type: ignore[untyped-decorator]
def on_dag_run_failed(dag_run: Any, msg: str) -> None:
    """Note the decision of a run that failed after the decision."""
    note_decision(dag_run)


def note_decision(dag_run: Any) -> None:
    """Add the decision to the run's note, below a person's text; do nothing without a decision.

    Args:
        dag_run: The run, in the scheduler's database session, which writes it afterwards.
    """
    if has_our_tasks(dag_run) and (reason := _reason(dag_run)):
        dag_run.note = joined_note(dag_run.note, reason)


def has_our_tasks(dag_run: Any) -> bool:
    """Return whether the run's DAG has tasks of our operators. Runs of other DAGs cause no query.

    The scheduler knows the DAG. The API server does not know the DAG of a run with a state set by a person.
    """
    return dag_run.dag is None or any(str(task.task_type).startswith("DeepSpark") for task in dag_run.dag.tasks)


def joined_note(note: str | None, reason: str) -> str:
    r"""Return the note with a single reason below, cut to Airflow's limit.

    Example:
        >>> joined_note(None, "kept production"), joined_note("mine", "kept production")
        ('kept production', 'mine\n\nkept production')
        >>> joined_note("mine\n\nkept production", "kept production")
        'mine\n\nkept production'
    """
    if note and reason in note:
        return note
    return (f"{note}\n\n{reason}" if note else reason)[:MAX_NOTE]


def _reason(dag_run: Any) -> str | None:
    # Imported here: a worker imports the plugin too, and has no database.
    from airflow.models.xcom import XComModel
    from sqlalchemy import select
    from sqlalchemy.orm import object_session

    session = object_session(dag_run)
    if session is None:
        return None
    of_run = (XComModel.dag_id == dag_run.dag_id, XComModel.run_id == dag_run.run_id, XComModel.key == REASON_KEY)
    # The last row: a person may have refused the better model of task decide.
    last = XComModel.timestamp.desc()
    row = session.scalars(select(XComModel).where(*of_run).order_by(last)).first()
    return None if row is None else str(XComModel.deserialize_value(row))
