"""The runs of a DAG run with several trainings: one folder a training. No framework.

The id of such a run, and the name of its folder, join the DAG run's id, the id of the run's first task and the index of
a mapped task (``StageArguments``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from deepspark_ops.operators.pages.addresses import find_run, mapped_run_id
from deepspark_ops.operators.tasks.run_plan import HAS_DIGEST, Places, folder_prefixes, safe_run_id
from deepspark_ops.run_index.listing import KnownRun
from deepspark_ops.run_view.stage_status import StageStatus, read_statuses
from deepspark_ops.run_view.state import AirflowRun

_MAPPED: Final = re.compile(r"(.+)_(\d+)")
_MARK: Final = "__"


class SeveralRuns(Exception):
    """A DAG run has several runs. The arguments are the ids of DAG and DAG run."""


def split_run_id(run_id: str) -> Iterator[tuple[str, str]]:
    """Yield every split of a run's id into a DAG run's id and a first task, the longest id first.

    Example:
        >>> list(split_run_id("manual__2026__fit"))
        [('manual__2026', 'fit'), ('manual', '2026__fit')]
    """
    end = len(run_id)
    while (end := run_id.rfind(_MARK, 0, end)) > 0:
        if end + len(_MARK) < len(run_id):
            yield run_id[:end], run_id[end + len(_MARK) :]


def mapped_task(task: str) -> tuple[str, int] | None:
    """Return id and index of a mapped task from the end of a run's id; None without an index.

    Example:
        >>> mapped_task("fit_1"), mapped_task("fit")
        (('fit', 1), None)
    """
    match = _MAPPED.fullmatch(task)
    return (match[1], int(match[2])) if match else None


def run_parts(installation: Places, dag_id: str, run_id: str) -> list[str]:
    """Return the ids of a DAG run's runs in folders of their first tasks, by name."""
    folder = find_run(installation, dag_id, run_id)
    if folder is None or not folder.parent.is_dir():
        return []
    paths = [path for path in folder.parent.iterdir() if path.name.startswith(folder_prefixes(run_id))]
    return [part_id(run_id, name) for name in sorted(path.name for path in paths if path.is_dir())]


def part_id(run_id: str, folder_name: str) -> str:
    """Return the id of a DAG run's run from the name of its folder, or the name where the id is lost."""
    prefix = next(prefix for prefix in folder_prefixes(run_id) if folder_name.startswith(prefix))
    task = folder_name.removeprefix(prefix)
    candidates = (f"{run_id}{_MARK}{task}", f"{run_id}{_MARK}{HAS_DIGEST.sub('', task)}")
    return next((name for name in candidates if safe_run_id(name) == folder_name), folder_name)


def run_of_tab(installation: Places, dag_id: str, run_id: str, *, task_id: str = "", map_index: str = "") -> str:
    """Return the run for a tab of a DAG run or of a task.

    Args:
        installation: Where the runs are.
        dag_id: Of the DAG.
        run_id: Of the DAG run, or of a run.
        task_id: Of the tab's task; empty for a tab of the DAG run. A task is of the run whose folder has its notes.
        map_index: Of the tab's task; any other text than an index for a task that is not mapped.

    Returns:
        The run of the task; without such a run that in the folder of the trial or of the DAG run, or the DAG run's
        single run, or its single run with a training.

    Raises:
        SeveralRuns: The DAG run has several such runs.
    """
    own_folder, trial = find_run(installation, dag_id, run_id), mapped_run_id(run_id, map_index)
    has_own = own_folder is not None and own_folder.is_dir()
    parts = run_parts(installation, dag_id, run_id) if task_id or not has_own else []
    index = int(map_index) if map_index.isdecimal() else -1
    trainings = []
    for part in (run_id, *parts):
        folder = find_run(installation, dag_id, part)
        statuses = read_statuses(folder) if folder is not None else {}
        if task_id and any((status.task, status.map_index) == (task_id, index) for status in statuses.values()):
            return part
        if "train" in statuses:
            trainings.append(part)
    if has_own or not parts:
        return trial if trial in parts or not has_own else run_id
    chosen = trainings if len(trainings) == 1 else parts
    if len(chosen) > 1:
        raise SeveralRuns(dag_id, run_id)
    return chosen[0]


def dag_runs_by_prefix(dag_runs: Iterable[KnownRun]) -> dict[tuple[str, str], KnownRun]:
    """Return DAG and beginning of a folder's name -> DAG run, as of ``folder_prefixes``."""
    return {(run.dag, prefix): run for run in dag_runs for prefix in folder_prefixes(run.run)}


def find_dag_run(
    dag_runs: Callable[[], Mapping[tuple[str, str], KnownRun]], dag: str, folder_name: str
) -> KnownRun | None:
    """Return the DAG run that a folder's run is a part of; None for another folder.

    ``dag_runs`` returns the DAG runs of ``dag_runs_by_prefix``; it is called for a name that may be a part's.
    """
    splits = (dag_runs().get((dag, start + _MARK)) for start, _ in split_run_id(folder_name))
    return next((run for run in splits if run is not None), None)


def known_part(dag_run: KnownRun, folder: Path) -> KnownRun:
    """Return a run of a DAG run with several runs, for the list of runs."""
    statuses = list(read_statuses(folder).values())
    is_over = dag_run.state in ("success", "failed")
    state = _state(statuses, dag_run.state)
    ended = max((status.time for status in statuses), default=None)
    return KnownRun(
        dag_run.dag,
        part_id(dag_run.run, folder.name),
        state,
        when=dag_run.when,
        began=min((status.began for status in statuses), default=None),
        ended=ended if is_over or state != "running" else None,
        kind=dag_run.kind,
        user=dag_run.user,
        dag_run=dag_run.run,
    )


def _state(statuses: list[StageStatus], of_dag_run: str | None) -> str | None:
    """Return Airflow's word for a run from its tasks' notes; a task that was killed has no end in its note."""
    words = {status.status for status in statuses}
    is_over = of_dag_run in ("success", "failed")
    if "failed" in words or (is_over and "running" in words):
        return "failed"
    return "success" if is_over or (words and not words & {"running", "waiting"}) else of_dag_run


def airflow_part(dag_run: AirflowRun, task: str) -> AirflowRun | None:
    """Return Airflow's state of a run that ``task`` began; None if the DAG run has no such task."""
    if task not in dag_run.tasks:
        return None
    return AirflowRun(dag_run.state, dag_run.tasks, first_task=task, dag_run=dag_run.dag_run)
