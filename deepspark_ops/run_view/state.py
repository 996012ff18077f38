"""State of a run, in one word and one sentence: from its events, its tasks' notes, and Airflow's states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from deepspark_ops.run_view.progress import RunProgress
from deepspark_ops.run_view.stage_status import NO_MESSAGE, StageStatus, ended_text

StateName = Literal["unknown", "waiting", "starting", "running", "finished", "failed", "stopped", "skipped"]
TASKS_BEFORE_TRAINING: Final = ("check", "ingest")
"""Tasks before a training, in their order."""
_FAILED: Final = ("failed", "upstream_failed")
ASKING: Final = ("awaiting_input", "deferred")
"""Airflow's states of a task that waits for a person's answer; ``deferred`` also of a task that waits for its turn."""
_OVER: Final = ("success", *_FAILED, "skipped", "removed")
_TASKS_AFTER_TRAINING: Final = ("evaluate_production", "evaluate", "decide", "export")
"""Tasks after a training, in their order; tasks of other names follow."""
NO_TASK_FAILED: Final = "no task failed: a person stopped the run, or the run's time limit ended the run"
_STOPPED: Final = "stopped before the training began: the run was marked as failed"
_QUEUED: Final = "waits for Airflow: the DAG is paused, or has its max_active_runs going on"
_END_REFUSED: Final = (
    "the task did its work to the end, and Airflow has it as failed all the same: Airflow did not accept its end state,"
    " and the log of its API server says why, or the task was marked; clear the task to run it again"
)


@dataclass(frozen=True)
class TaskState:
    """State of a task in Airflow.

    Attributes:
        state: Airflow's state; None before the task is scheduled.
        began: Start of the present try, seconds since the epoch; None before the start.
        ended: End of the present try; None before the end.
        try_number: Number of the try.
        stage: Word of the stage; empty for a task of another operator, and for a subclass of ours.
        task: Airflow's id of the task; empty outside Airflow.
    """

    state: str | None
    began: float | None = None
    ended: float | None = None
    try_number: int = 0
    stage: str = ""
    task: str = ""

    @property
    def is_stopped(self) -> bool:
        """Return whether a person marked the task as failed before the first try: the task has times and no try."""
        return self.state == "failed" and self.try_number == 0 and self.began is not None


@dataclass(frozen=True)
class AirflowRun:
    """State of a DAG run in Airflow.

    Attributes:
        state: Airflow's state of the DAG run.
        tasks: Task id -> state, or after ``of_run`` stage -> state.
        note: Note of the run by a person; empty without a note.
        dag_run: Id of the DAG run; empty if unknown.
        first_task: Task that began the run, of several runs in the DAG run; empty for a run of a whole DAG run.
    """

    state: str
    tasks: Mapping[str, TaskState] = field(default_factory=dict)
    note: str = ""
    dag_run: str = ""
    first_task: str = ""

    def of_run(self, statuses: Mapping[str, StageStatus], elsewhere: Mapping[str, StageStatus] = {}) -> AirflowRun:
        """Return the run's own tasks by stage, by their status files. Other tasks of the DAG run keep their ids.

        ``elsewhere`` are, of several runs in the DAG run, the status files in the folder of the DAG run.
        """
        noted = {status.task: stage for stage, status in statuses.items() if status.task}
        noted_elsewhere = {status.task for status in elsewhere.values()} - noted.keys()
        n_tasks = Counter(task.stage for task in self.tasks.values())
        run_tasks, other_tasks = {}, {}
        for name, task in self.tasks.items():
            if name in noted_elsewhere:
                continue
            stage = noted.get(name) or task.stage
            if stage and (name in noted or name == self.first_task or n_tasks[stage] == 1):
                run_tasks[stage] = replace(task, task=name)
            else:
                other_tasks[name] = task
        other_keys = {name: f"{task.stage}.{name}" if name in run_tasks else name for name, task in other_tasks.items()}
        keyed_tasks = {other_keys[name]: replace(task, task=name) for name, task in other_tasks.items()}
        return replace(self, tasks=run_tasks if self.first_task else {**run_tasks, **keyed_tasks})

    @property
    def is_over(self) -> bool:
        """Return whether no task of the run will start again by itself."""
        return self.state in ("success", "failed")


@dataclass(frozen=True)
class RunError:
    """Error of a failed run: stage and task, and the message from the task's log."""

    stage: str
    task: str
    text: str


@dataclass(frozen=True)
class RunState:
    """State of a run.

    Attributes:
        name: State in one word.
        text: State in one sentence, without a full stop.
        error: Error of the first failed stage, also of a stage after a finished training.
        is_over: The state is final.
        done: Finished items of ``total`` in the stage before or after the training; None without a count.
        total: Number of items; None without a count.
        asks: Id of the task that waits for a person's answer; None without such a task.
    """

    name: StateName
    text: str
    error: RunError | None = None
    is_over: bool = False
    done: int | None = None
    total: int | None = None
    asks: str | None = None


def state_of(
    progress: RunProgress, statuses: Mapping[str, StageStatus], airflow: AirflowRun | None, *, exists: bool
) -> RunState:
    """Return the state of a run from its events, its tasks' status files, and the DAG run.

    Airflow does not know a run of ``deepspark train``. ``exists``: whether the run has a folder.
    """
    if airflow is None and not exists:
        return RunState("unknown", "there is no such run", is_over=True)
    tasks = airflow.tasks if airflow is not None else _tasks_of(progress, statuses)
    error = _first_error(progress, statuses, tasks)
    is_over = airflow.is_over if airflow is not None else progress.ended is not None or error is not None
    has_ended = all(task.state in _OVER for task in tasks.values())
    trains = "train" in tasks or (not has_ended and tasks.keys() & set(TASKS_BEFORE_TRAINING))
    if airflow is not None and tasks and not trains:
        name, text = _without_training(airflow, statuses, error)
    else:
        name, text = _training(progress, statuses, tasks, error)
        if name == "skipped" and airflow is not None and airflow.state == "failed":
            name, text = ("stopped", _STOPPED) if error is None else ("failed", f"task {error.task} failed")
        if name == "finished" and tasks["train"].state == "success" and _failed_later(airflow, tasks, error):
            reason = f"task {error.task} failed" if error is not None else NO_TASK_FAILED
            name, text = "failed", f"the training finished; {reason}"
    if airflow is not None and name == "finished" and not exists:
        text = f"{text}; this run has no folder: run= of its tasks names the folder of another run"
    if name == "waiting" and airflow is not None and airflow.state == "queued":
        text = _QUEUED
    asks = None if is_over else _asking(statuses, tasks)
    if asks is not None:
        text = "waits for approval"
    return RunState(name, text, error, is_over, *_count(statuses, tasks, name), asks)


def _failed_later(airflow: AirflowRun | None, tasks: Mapping[str, TaskState], error: RunError | None) -> bool:
    """Return whether a run with a finished training has failed: as Airflow says, else by the run's own tasks."""
    if airflow is not None and not airflow.first_task:
        return airflow.state == "failed"
    return error is not None and tasks[error.stage].state == "failed"


def _asking(statuses: Mapping[str, StageStatus], tasks: Mapping[str, TaskState]) -> str | None:
    """Return the task whose status is waiting and that Airflow still has as waiting."""
    for name, status in statuses.items():
        task = tasks.get(name)
        if status.status == "waiting" and not status.message and task is not None and task.state in ASKING:
            return task.task or name
    return None


def _task_id(tasks: Mapping[str, TaskState], name: str) -> str:
    return tasks[name].task or name if name in tasks else name


def _tasks_of(progress: RunProgress, statuses: Mapping[str, StageStatus]) -> dict[str, TaskState]:
    """Return the tasks of a run without Airflow, from the run's files."""
    words = {"finished": "success", "waiting": ASKING[0]}
    tasks = {
        name: TaskState(words.get(status.status, status.status), status.began, try_number=1)
        for name, status in statuses.items()
    }
    if progress.started and "train" not in tasks:
        ending = progress.ended.get("status") if progress.ended is not None else None
        endings = {"finished": "success", "failed": "failed", "stopped": "failed"}
        tasks["train"] = TaskState(endings.get(str(ending), "running"))
    return tasks


def _first_error(
    progress: RunProgress, statuses: Mapping[str, StageStatus], tasks: Mapping[str, TaskState]
) -> RunError | None:
    names = [*TASKS_BEFORE_TRAINING, "train", *sorted(tasks.keys() - {*TASKS_BEFORE_TRAINING, "train"})]
    was_stopped = progress.ended is not None and progress.ended.get("status") == "stopped"
    has_reason = "train" in statuses and statuses["train"].message not in ("", ended_text("train"))
    for name in names:
        task = tasks.get(name)
        if task is None or task.is_stopped or (name == "train" and was_stopped and not has_reason):
            continue
        if task.state in ("failed", "up_for_retry"):
            return RunError(name, task.task or name, _message(name, task, progress, statuses))
    return None


def _message(name: str, task: TaskState, progress: RunProgress, statuses: Mapping[str, StageStatus]) -> str:
    status = statuses.get(name)
    if status is not None and status.status == "finished" and status.time >= (task.began or 0.0):
        return _END_REFUSED
    if status is not None and status.message:
        return status.message
    if name == "train" and progress.ended is not None and progress.ended.get("reason"):
        return str(progress.ended["reason"])
    return NO_MESSAGE


def _training(
    progress: RunProgress,
    statuses: Mapping[str, StageStatus],
    tasks: Mapping[str, TaskState],
    error: RunError | None,
) -> tuple[StateName, str]:
    """Return word and sentence for the training."""
    train = tasks.get("train", TaskState(None))
    ending = str(progress.ended.get("status")) if progress.ended is not None else ""
    if train.state == "success":
        return "finished", _following_text(tasks, statuses)
    if train.state == "skipped":
        simulate = tasks.get("simulate", TaskState("skipped"))
        return _simulated(simulate) if simulate.state != "skipped" else ("skipped", _skip_reason(statuses))
    is_stopped = ending == "stopped" and (error is None or error.stage != "train")
    if is_stopped and train.state not in ("running", "queued", "scheduled", "up_for_retry"):
        return "stopped", f"stopped by {progress.ended.get('signal', 'a signal') if progress.ended else ''}"
    if train.is_stopped and error is None:
        return "stopped", _STOPPED
    if train.state in _FAILED or (error is not None and error.stage in TASKS_BEFORE_TRAINING and train.state is None):
        return "failed", f"task {error.task if error is not None else _task_id(tasks, 'train')} failed"
    if train.state == "up_for_retry":
        return "waiting", f"try {train.try_number} failed; Airflow tries again soon"
    if train.state == "running":
        return _running(progress, train)
    return "waiting", _waits_for(statuses, tasks)


def _skip_reason(statuses: Mapping[str, StageStatus]) -> str:
    """Return the message of the task that skipped the training; empty if a person marked the task."""
    skipped = (
        statuses[name] for name in TASKS_BEFORE_TRAINING if name in statuses and statuses[name].status == "skipped"
    )
    return next((status.message for status in skipped if status.message), "the training was skipped")


def _simulated(task: TaskState) -> tuple[StateName, str]:
    """Return word and sentence for a comparison with simulated trials."""
    if task.state == "success":
        return "finished", "its trials were simulated; the tab Report has how they went"
    if task.state in _FAILED:
        return "failed", "task simulate failed"
    if task.state == "running":
        return "running", "virtual workers train"
    return "waiting", "waits for task simulate"


def _running(progress: RunProgress, train: TaskState) -> tuple[StateName, str]:
    # Events before this try belong to an earlier try.
    is_earlier = train.began is not None and progress.started_time < train.began
    if not progress.started or is_earlier or progress.ended is not None:
        return "starting", "Spark and its workers are starting"
    if not progress.has_trained:
        return "starting", "workers are building the net" if progress.workers else "Spark and its workers are starting"
    n_training, n_workers = len(progress.training()), progress.started.get("n_workers", "?")
    if fewest := progress.started.get("fewest_workers"):
        training = "1 worker trains" if n_training == 1 else f"{n_training} workers train"
        return "running", f"{training}, {fewest} to {n_workers} as there are slots"
    return "running", f"{n_training} of {n_workers} workers train"


def _without_training(
    airflow: AirflowRun, statuses: Mapping[str, StageStatus], error: RunError | None
) -> tuple[StateName, str]:
    """Return word and sentence for a run whose DAG trains nothing."""
    if error is not None or (airflow.state == "failed" and not airflow.first_task):
        return "failed", f"task {error.task} failed" if error is not None else "the run was marked as failed"
    if airflow.state == "success" or all(task.state in _OVER for task in airflow.tasks.values()):
        return "finished", "this run trains nothing; its tasks have ended"
    states = {task.state for task in airflow.tasks.values()}
    return ("running" if "running" in states else "waiting"), _next(airflow.tasks, statuses, airflow.tasks)


def _following_text(tasks: Mapping[str, TaskState], statuses: Mapping[str, StageStatus]) -> str:
    """Describe the task after a finished training."""
    other_tasks = (name for name in tasks if name not in (*TASKS_BEFORE_TRAINING, "train", *_TASKS_AFTER_TRAINING))
    return _next(tasks, statuses, (*_TASKS_AFTER_TRAINING, *other_tasks)) or "training has ended"


def _next(tasks: Mapping[str, TaskState], statuses: Mapping[str, StageStatus], names: Iterable[str]) -> str:
    """Describe the first unfinished task of ``names``: running, asking a person, or next; empty if all have ended."""
    unfinished = [name for name in names if name in tasks and tasks[name].state not in _OVER]
    for name in unfinished:
        if tasks[name].state == "running":
            text = statuses[name].text if name in statuses else ""
            return f"task {_task_id(tasks, name)} runs{': ' + text if text else ''}"
        if tasks[name].state in ASKING:
            return f"task {_task_id(tasks, name)} waits for a person's decision: page Required Actions"
    return f"task {_task_id(tasks, unfinished[0])} comes next" if unfinished else ""


def _waits_for(statuses: Mapping[str, StageStatus], tasks: Mapping[str, TaskState]) -> str:
    for name in (*TASKS_BEFORE_TRAINING, "train"):
        task = tasks.get(name)
        if task is None or task.state in ("success", "skipped"):
            continue
        task_id = task.task or name
        if task.state == "running":
            text = statuses[name].text if name in statuses else ""
            return f"waits for task {task_id}{': ' + text if text else ', which runs'}"
        if task.state == "up_for_retry":
            return f"waits for task {task_id}: try {task.try_number} failed, Airflow tries again soon"
        if task.state in ASKING and name in statuses and statuses[name].message:
            return f"waits for task {task_id}: {statuses[name].message}"
        return f"waits for task {task_id}, which {'is in the queue' if task.state == 'queued' else 'has not begun'}"
    return "waits for its first task"


def _count(
    statuses: Mapping[str, StageStatus], tasks: Mapping[str, TaskState], name: StateName
) -> tuple[int | None, int | None]:
    if name in ("waiting", "finished"):
        for stage, status in statuses.items():
            task = tasks.get(stage)
            if stage != "train" and task is not None and task.state == "running" and status.total:
                return status.done, status.total
    return None, None
