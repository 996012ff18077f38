"""DAG runs from Airflow's database. The pages run in the API server and read the server's database."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from pathlib import PurePosixPath
from typing import Final

from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun, DagRunNote
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from deepspark_ops import operators
from deepspark_ops.operators.pages.run.run_parts import airflow_part, mapped_task, split_run_id
from deepspark_ops.operators.pages.run.trials import folded, of_trial
from deepspark_ops.run_index.listing import KnownRun
from deepspark_ops.run_index.schedule import BY_HAND, Schedule, schedule_text, timezone_of
from deepspark_ops.run_label.names import work_of_stages
from deepspark_ops.run_view.state import ASKING, AirflowRun, TaskState
from deepspark_ops.trials.plan import comparison_of

FRESH_S: Final = 1.0
"""Twenty open pages of a run ask once in this time."""
_CACHED_RUNS: Final = 64
DAG_TAG: Final = "deepspark"
"""Tag of the DAGs whose runs are listed; one without it is listed once it has a run's folder."""
RUNS_LISTED: Final = 20_000
_ROWS_AT_ONCE: Final = 500
"""Keys in a query; databases have a bound."""
ASKS_BY: Final = ("DeepSparkApproveOperator", "ApproveOperator")
"""Classes of the tasks that wait for a person's answer; the second is of runs that an earlier version began."""


class AirflowRuns:
    """A short cache of DAG runs. Thread-safe."""

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
        self._cache: dict[tuple[str, str], tuple[float, AirflowRun | None]] = {}

    def of(self, dag_id: str, run_id: str) -> AirflowRun | None:
        """Return a run; None for an unknown name."""
        with self._lock:
            now = self._clock()
            cached = self._cache.get((dag_id, run_id))
            if cached is None or now - cached[0] >= FRESH_S:
                cached = self._cache[dag_id, run_id] = now, self._read(dag_id, run_id)
                if len(self._cache) > _CACHED_RUNS:
                    self._cache = {name: entry for name, entry in self._cache.items() if now - entry[0] < FRESH_S}
            return cached[1]


def read_run(dag_id: str, run_id: str) -> AirflowRun | None:
    """Return a run from the database; for a trial or one of several runs of a DAG run, its part of the DAG run."""
    run = _read_run(dag_id, run_id)
    if run is None and (trial := comparison_of(run_id)) is not None:
        comparison = _read_run(dag_id, trial[0], map_index=trial[1] - 1)
        run = None if comparison is None else of_trial(comparison)
    return run or _read_part(dag_id, run_id)


def _read_part(dag_id: str, run_id: str) -> AirflowRun | None:
    for dag_run_id, task in split_run_id(run_id):
        dag_run = _read_run(dag_id, dag_run_id)
        if dag_run is None:
            continue
        part = airflow_part(dag_run, task)
        if part is None and (mapped := mapped_task(task)) is not None:
            dag_run = _read_run(dag_id, dag_run_id, map_index=mapped[1])
            part = None if dag_run is None else airflow_part(dag_run, mapped[0])
        return part
    return None


@cache
def _stages() -> dict[str, str]:
    """Return the name of each operator's class -> stage."""
    return {name: getattr(operators, name).stage for name in vars(operators)["__all__"] if name.endswith("Operator")}


def _read_run(dag_id: str, run_id: str, *, map_index: int | None = None) -> AirflowRun | None:
    with create_session() as session:
        run = select(DagRun.state, DagRunNote.content).outerjoin(DagRunNote, DagRunNote.dag_run_id == DagRun.id)
        row = session.execute(run.where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)).first()
        if row is None:
            return None
        state, note = row
        columns = (
            TaskInstance.task_id,
            TaskInstance.state,
            TaskInstance.start_date,
            TaskInstance.end_date,
            TaskInstance.try_number,
            TaskInstance.operator,
        )
        conditions = [TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id]
        if map_index is not None:
            conditions.append(TaskInstance.map_index.in_((-1, map_index)))
        task_rows = session.execute(select(*columns).where(*conditions)).all()
    tasks: dict[str, list[TaskState]] = {}
    for task, word, began, ended, tries, operator in task_rows:
        task_state = TaskState(
            None if word is None else str(word), _seconds(began), _seconds(ended), tries, _stages().get(operator, "")
        )
        tasks.setdefault(task, []).append(task_state)
    return AirflowRun(str(state), {name: folded(mapped) for name, mapped in tasks.items()}, note or "", run_id)


def tagged_dags() -> set[str]:
    """Return the ids of the DAGs with our tag."""
    with create_session() as session:
        return set(session.scalars(select(DagModel.dag_id).where(DagModel.tags.any(name=DAG_TAG))).all())


class RunRows:
    """DAG runs for the list. Finished runs stay in memory until their state, note or row changes. Thread-safe."""

    def __init__(self) -> None:
        """Keep no run yet."""
        self._lock = threading.Lock()
        self._finished: dict[int, tuple[tuple[object, ...], KnownRun]] = {}

    def read(self, dags: Collection[str]) -> list[KnownRun]:
        """Return the runs of some DAGs, newest first, ``RUNS_LISTED`` at most."""
        newest = (
            select(DagRun.id, DagRun.state, DagRun.updated_at, DagRunNote.content)
            .outerjoin(DagRunNote, DagRunNote.dag_run_id == DagRun.id)
            .where(DagRun.dag_id.in_(dags))
            .order_by(DagRun.run_after.desc())
            .limit(RUNS_LISTED)
        )
        waiting = select(TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id).where(
            TaskInstance.dag_id.in_(dags),
            TaskInstance.state.in_(ASKING),
            TaskInstance.operator.in_(ASKS_BY),
        )
        with create_session() as session:
            stamps = {row[0]: tuple(row[1:]) for row in session.execute(newest)}
            asks = {(dag, run): task for dag, run, task in session.execute(waiting)}
            runs = self._unchanged(stamps)
            runs |= self._keep(stamps, _read_rows(session, [key for key in stamps if key not in runs], stamps))
        listed = [runs[key] for key in stamps if key in runs]  # a run may be deleted between the queries
        return [replace(run, asks=asks[run.dag, run.run]) if (run.dag, run.run) in asks else run for run in listed]

    def _unchanged(self, stamps: Mapping[int, tuple[object, ...]]) -> dict[int, KnownRun]:
        with self._lock:
            entries = ((key, self._finished.get(key), stamp) for key, stamp in stamps.items())
            return {key: entry[1] for key, entry, stamp in entries if entry is not None and entry[0] == stamp}

    def _keep(self, stamps: Mapping[int, tuple[object, ...]], runs: dict[int, KnownRun]) -> dict[int, KnownRun]:
        finished = {key: (stamps[key], run) for key, run in runs.items() if run.state in ("success", "failed")}
        with self._lock:
            if len(self._finished) > RUNS_LISTED:
                self._finished.clear()  # the next list fills it again, with the runs that exist
            self._finished |= finished
        return runs


def _read_rows(session: Session, keys: Sequence[int], stamps: Mapping[int, tuple[object, ...]]) -> dict[int, KnownRun]:
    """Return runs by their keys in the database; ``stamps`` have their notes."""
    columns = (
        DagRun.id, DagRun.dag_id, DagRun.run_id, DagRun.state, DagRun.run_after, DagRun.start_date, DagRun.end_date,
        DagRun.run_type, DagRun.triggering_user_name, DagRun.conf,
    )  # fmt: skip
    # A task that a person marked as failed before its first try did not fail.
    failed = (
        select(TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id)
        .where(DagRun.state == "failed", TaskInstance.state == "failed", TaskInstance.try_number > 0)
        .join(DagRun, (DagRun.dag_id == TaskInstance.dag_id) & (DagRun.run_id == TaskInstance.run_id))
    )
    runs = {}
    for start in range(0, len(keys), _ROWS_AT_ONCE):
        are_chosen = DagRun.id.in_(keys[start : start + _ROWS_AT_ONCE])
        failed_tasks = {(dag, run): task for dag, run, task in session.execute(failed.where(are_chosen))}
        rows = session.execute(select(*columns).where(are_chosen)).all()
        works = _works(session, {row.dag_id: row.run_id for row in rows})
        for key, dag, run, state, when, began, ended, kind, user, conf in rows:
            runs[key] = KnownRun(
                dag,
                run,
                str(state),
                _seconds(when),
                _seconds(began),
                _seconds(ended),
                kind=str(getattr(kind, "value", kind) or ""),
                user=user,
                name=_form_text(conf, "name") or "",
                solver=_file_name(_form_text(conf, "solver")),
                strategy=_form_text(conf, "strategy"),
                failed_task=failed_tasks.get((dag, run)),
                note=str(stamps[key][-1] or ""),
                work=works.get(dag),
            )
    return runs


def _works(session: Session, run_of_dag: Mapping[str, str]) -> dict[str, str | None]:
    """Return DAG -> work, by the operators of a run of the DAG."""
    operator = select(TaskInstance.dag_id, TaskInstance.operator).where(
        tuple_(TaskInstance.dag_id, TaskInstance.run_id).in_(run_of_dag.items())
    )
    stages: dict[str, set[str]] = {}
    for dag, name in session.execute(operator.where(TaskInstance.operator.in_(_stages()))):
        stages.setdefault(dag, set()).add(_stages()[name])
    return {dag: work_of_stages(frozenset(names), has_trials=False, has_trained=False) for dag, names in stages.items()}


def read_schedules(dags: Collection[str]) -> list[Schedule]:
    """Return when some DAGs run by themselves, by name; a DAG whose file is gone is left out."""
    columns = (
        DagModel.dag_id, DagModel.timetable_description, DagModel.asset_expression, DagModel.next_dagrun_create_after,
        DagModel.is_paused,
    )  # fmt: skip
    query = select(*columns).where(DagModel.dag_id.in_(dags), DagModel.is_stale.is_(False)).order_by(DagModel.dag_id)
    with create_session() as session:
        schedules = []
        for dag, description, assets, next_run, is_paused in session.execute(query).all():
            text = schedule_text(description or "", assets=assets)
            if text != BY_HAND:
                text = schedule_text(description or "", timezone=_timezone(session, dag), assets=assets)
            schedules.append(Schedule(dag, text, _seconds(next_run), bool(is_paused)))
    return schedules


def _timezone(session: Session, dag: str) -> str:
    """Return the time zone of a DAG's timetable. The table of DAGs has no time zones."""
    of_dag = select(SerializedDagModel).where(SerializedDagModel.dag_id == dag)
    newest = session.scalars(of_dag.order_by(SerializedDagModel.created_at.desc()).limit(1)).first()
    data = newest.data if newest is not None else None
    return timezone_of((data or {}).get("dag", {}).get("timetable"))


def _form_text(conf: object, name: str) -> str | None:
    """Return a text of a run's form; None for a missing, empty or foreign value."""
    value = conf.get(name) if isinstance(conf, dict) else None
    return value if isinstance(value, str) and value else None


def _file_name(path: str | None) -> str | None:
    return None if path is None else PurePosixPath(path).name


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
