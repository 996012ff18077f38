"""Keeps a run failed that a person marked as failed on Airflow's page.

The mark skips the tasks that did not start. A scheduler that read the run before the mark goes on with the run: the
scheduler takes skipped last tasks for a success and overwrites the mark. So a last task fails with the mark. The
function is a listener of the API server.
"""

from __future__ import annotations

from typing import Any

from airflow.listeners import hookimpl

from deepspark_ops.operators.tasks.run_note import has_our_tasks


@hookimpl  # type: ignore[untyped-decorator]
def on_dag_run_failed(dag_run: Any, msg: str) -> None:
    """Let a last task of a failed run of our operators fail, if no last task failed.

    Args:
        dag_run: The run, in a database session that is written afterwards. Airflow before 3.3 gives no DAG with a run
            that a person marked; nothing changes there.
        msg: Unused.
    """
    if dag_run.dag is None or not has_our_tasks(dag_run):
        return
    last_tasks = _last_tasks(dag_run)
    skipped = [task for task in last_tasks if task.state == "skipped" and task.try_number == 0]
    if skipped and not any(task.state in ("failed", "upstream_failed") for task in last_tasks):
        skipped[0].state = "failed"


def _last_tasks(dag_run: Any) -> list[Any]:
    # Imported here: a worker imports the plugin too, and has no database.
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import select
    from sqlalchemy.orm import object_session

    session = object_session(dag_run)
    if session is None:
        return []
    names = [task.task_id for task in dag_run.dag.tasks if not task.downstream_task_ids]
    of_run = (TaskInstance.dag_id == dag_run.dag_id, TaskInstance.run_id == dag_run.run_id)
    return list(session.scalars(select(TaskInstance).where(*of_run, TaskInstance.task_id.in_(names))))
