"""What Airflow's database says of DAG runs. The pages run in the API server, whose database this is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Final

from airflow.models.dag import DagTag
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import select

from deepspark_ops.run_index.listing import KnownRun
from deepspark_ops.run_view.state import AirflowRun, TaskState

FRESH_S: Final = 1.0
"""Twenty open pages of a run ask once in this time."""
_KEPT: Final = 64
DAG_TAG: Final = "deepspark"
"""Tag of the DAGs whose runs are listed; one without it is listed once it has a run's folder."""
RUNS_LISTED: Final = 2_000


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


def tagged_dags() -> set[str]:
    """Return the ids of the DAGs that say by their tag that they are ours."""
    with create_session() as session:
        return set(session.scalars(select(DagTag.dag_id).where(DagTag.name == DAG_TAG)).all())


def read_runs(dags: Collection[str]) -> list[KnownRun]:
    """Return the runs of some DAGs, newest first, ``RUNS_LISTED`` at most."""
    columns = (
        DagRun.dag_id, DagRun.run_id, DagRun.state, DagRun.run_after, DagRun.start_date, DagRun.end_date,
        DagRun.run_type, DagRun.triggering_user_name,
    )  # fmt: skip
    newest = select(*columns).where(DagRun.dag_id.in_(dags)).order_by(DagRun.run_after.desc()).limit(RUNS_LISTED)
    with create_session() as session:
        found = session.execute(newest).all()
    return [
        KnownRun(dag, run, str(state), _seconds(when), _seconds(began), _seconds(ended), _word(kind), user)
        for dag, run, state, when, began, ended, kind, user in found
    ]


def _word(value: object) -> str:
    return str(getattr(value, "value", value) or "")


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
