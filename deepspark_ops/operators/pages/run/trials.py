"""The trials of a comparison on the page Training: state and addresses of each trial."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from deepspark_ops.operators.pages.addresses import run_url
from deepspark_ops.run_index.index_file import read_index
from deepspark_ops.run_index.listing import KnownRun
from deepspark_ops.run_index.summary import summarize
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.run_view.progress import RunProgress
from deepspark_ops.run_view.reading import RunReading
from deepspark_ops.run_view.stage_status import StageStatus, read_statuses
from deepspark_ops.run_view.state import TASKS_BEFORE_TRAINING, AirflowRun, RunState, StateName, TaskState, state_of
from deepspark_ops.trials.plan import Plan, Trial, comparison_of, read_member, read_plan, trial_run_id
from deepspark_ops.trials.standing import Standing, standing_of

OF_TRIALS: Final = ("train", "evaluate")
"""Tasks of which each trial has one."""
_OVER: Final[Mapping[str, StateName]] = {"success": "finished", "failed": "failed"}
_AIRFLOWS: Final = {
    "waiting": "queued", "running": "running", "trained": "running", "finished": "success", "failed": "failed",
}  # fmt: skip


@dataclass(frozen=True)
class ComparedTrials:
    """The trials of a comparison with their present states.

    Attributes:
        plan: The trials.
        standings: How each stands, in the same order.
    """

    plan: Plan
    standings: Sequence[Standing]

    @classmethod
    def of(cls, run_dir: Path, airflow: AirflowRun | None) -> ComparedTrials | None:
        """Return the trials of a run; None for a run that is no comparison."""
        plan = read_plan(run_dir)
        if plan is None:
            return None
        is_over = airflow is not None and airflow.is_over
        statuses = [read_statuses(Path(trial.run_dir)) for trial in plan.trials]
        return cls(plan, [standing_of(trial_statuses, is_over=is_over) for trial_statuses in statuses])

    def state(self, statuses: Mapping[str, StageStatus], airflow: AirflowRun | None) -> RunState:
        """Return the state of the comparison, from the notes of its own tasks and, if Airflow has it, the DAG run."""
        own_tasks = {name: task for name, task in (airflow.tasks if airflow else {}).items() if name not in OF_TRIALS}
        own_run = AirflowRun(airflow.state, own_tasks) if airflow is not None else None
        state = state_of(RunProgress(), statuses, own_run, exists=True)
        words = [standing.word for standing in self.standings]
        if state.error is not None or set(words) == {"waiting"}:
            return state
        n_scored, n_failed = words.count("finished"), words.count("failed")
        n_trained = n_scored + words.count("trained")
        text = f"{n_trained} of {len(words)} trials are trained, {n_scored} scored"
        text += f", {n_failed} failed" if n_failed else ""
        now = [trial.name for trial, word in zip(self.plan.trials, words, strict=True) if word == "running"]
        text += f"; now: {now[0]}" if now else ""
        is_over = own_run is not None and own_run.is_over
        name: StateName = "running" if own_run is None or not is_over else _OVER.get(own_run.state, "failed")
        return RunState(name, text, is_over=is_over, done=n_scored + n_failed, total=len(words))

    def rows(self, reading_of: Callable[[Path], RunReading]) -> list[dict[str, Any]]:
        """Return a row per trial, plain JSON values; ``reading_of`` reads a run that has no index yet."""
        both = zip(self.plan.trials, self.standings, strict=True)
        return [_row(self.plan, trial, standing, reading_of) for trial, standing in both]


def comparison_of_trial(run_dir: Path) -> dict[str, str] | None:
    """Return the comparison of a trial's run, and the trial's name; None for a run without a comparison."""
    member = read_member(run_dir)
    return None if member is None else {"run": member.run, "name": member.name}


def _row(plan: Plan, trial: Trial, standing: Standing, reading_of: Callable[[Path], RunReading]) -> dict[str, Any]:
    folder = Path(trial.run_dir)
    row: dict[str, Any] = {
        "name": trial.name,
        "same_runs": list(trial.same_runs),
        "run": trial.run,
        "url": run_url(plan.dag, trial.run, "training"),
        "report_url": run_url(plan.dag, trial.run, "report"),
        "state": standing.word,
        "reason": standing.reason,
        "clock": None,
        "max_iter": None,
        "accuracy": None,
        "figure": None,
        "images_per_s": None,
        "is_stopped_early": False,
        "has_report": (RunPaths(folder).evaluation / "report.html").is_file(),
    }
    if not RunPaths(folder).events.is_file():
        return row
    with suppress(OSError):
        summary = read_index(folder) or summarize(reading_of(folder), folder)
        row |= summary.model_dump(mode="json", include={"clock", "max_iter", "accuracy", "figure", "images_per_s"})
        is_trained = standing.word in ("trained", "finished")
        row["is_stopped_early"] = is_trained and summary.clock < (summary.max_iter or 0)
    return row


def folded(tasks: Sequence[TaskState]) -> TaskState:
    """Return a state for all mapped tasks of a task: running tasks come first, then failed tasks."""
    order = ("running", "up_for_retry", "queued", "scheduled", None, "failed", "upstream_failed", "success", "skipped")
    first = min(tasks, key=lambda task: order.index(task.state) if task.state in order else len(order))
    began = [task.began for task in tasks if task.began is not None]
    ended = [task.ended for task in tasks if task.ended is not None]
    is_over = len(ended) == len(tasks)
    return TaskState(
        first.state, min(began, default=None), max(ended, default=None) if is_over else None, first.try_number,
        first.stage,
    )  # fmt: skip


def of_trial(run: AirflowRun) -> AirflowRun:
    """Return the part of a comparison's DAG run for a trial. The part ends with the trial's own tasks."""
    tasks = {name: task for name, task in run.tasks.items() if name in (*TASKS_BEFORE_TRAINING, *OF_TRIALS)}
    states = [tasks[name].state for name in OF_TRIALS if name in tasks]
    if states and states[-1] in ("success", "failed", "skipped", "upstream_failed"):
        return replace(run, state="success" if set(states) == {"success"} else "failed", tasks=tasks)
    return replace(run, tasks=tasks)


def known_trial(comparison: KnownRun, folder: Path) -> KnownRun:
    """Return the run in a trial's folder for the list of runs."""
    statuses = read_statuses(folder)
    is_over = comparison.state in ("success", "failed")
    trial_statuses = sorted(
        (status for name, status in statuses.items() if name in OF_TRIALS), key=lambda status: status.began
    )
    word = standing_of(statuses, is_over=is_over).word
    # Between its training and its evaluation a trial waits for the trainings of the others.
    waits = (later.began - earlier.time for earlier, later in itertools.pairwise(trial_statuses))
    is_idle = word not in ("waiting", "running")
    trial = comparison_of(folder.name)
    return KnownRun(
        comparison.dag,
        trial_run_id(comparison.run, trial[1] if trial else 0),
        _AIRFLOWS[word],
        when=comparison.when,
        began=trial_statuses[0].began if trial_statuses else None,
        ended=max((status.time for status in trial_statuses), default=None) if is_idle else None,
        waited_s=sum(max(0.0, wait) for wait in waits),
        kind=comparison.kind,
        user=comparison.user,
        is_trial=True,
    )
