"""What Airflow's database says of a DAG run. The pages run in the API server, whose database this is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import select

from deepspark_ops.run_view.state import AirflowRun, TaskState

FRESH_S: Final = 1.0
"""Twenty open pages of a run ask once in this time."""
_KEPT: Final = 64


class AirflowRuns:
    """DAG runs as they were a moment ago. Thread-safe."""

    def __init__(
        self,
        read: Callable[[str, str], AirflowRun | None] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read by ``read(dag_id, run_id)``, by default from the database."""
        self._read = read or read_run
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], tuple[float, AirflowRun | None]] = {}

    def of(self, dag_id: str, run_id: str) -> AirflowRun | None:
        """Return a run; None if there is none of that name."""
        with self._lock:
            now = self._clock()
            known = self._known.get((dag_id, run_id))
            if known is None or now - known[0] >= FRESH_S:
                known = self._known[dag_id, run_id] = now, self._read(dag_id, run_id)
                if len(self._known) > _KEPT:
                    self._known = {name: kept for name, kept in self._known.items() if now - kept[0] < FRESH_S}
            return known[1]


def read_run(dag_id: str, run_id: str) -> AirflowRun | None:
    """Return a run as the database has it now."""
    with create_session() as session:
        run = select(DagRun.state).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
        state = session.scalar(run)
        if state is None:
            return None
        columns = (
            TaskInstance.task_id,
            TaskInstance.state,
            TaskInstance.start_date,
            TaskInstance.end_date,
            TaskInstance.try_number,
        )
        found = session.execute(
            select(*columns).where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)
        ).all()
    tasks = {
        task: TaskState(None if word is None else str(word), _seconds(began), _seconds(ended), tries)
        for task, word, began, ended, tries in found
    }
    return AirflowRun(str(state), tasks)


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
