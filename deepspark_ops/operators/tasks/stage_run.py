"""Common parts of the stage operators: the run's folder and paths from XCom, log lines, and errors for Airflow.

XCom carries paths and digests only. A run's first task decides the paths once; a task that is cleared later gets the
same paths.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from airflow.sdk import get_current_context

from caffe_import.errors import CaffeImportError
from caffe_import.extras import missing_extra
from deepspark_ops.errors import ConfigError, DataError, DeepSparkError
from deepspark_ops.operators.provider.airflow_names import (
    WAITS,
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTimeout,
    OwnTries,
)
from deepspark_ops.operators.tasks.airflow_words import airflow_words
from deepspark_ops.operators.tasks.line_buffer import LineBuffer
from deepspark_ops.operators.tasks.retries import OWN_DELAY, own_retries
from deepspark_ops.operators.tasks.run_link import is_shown
from deepspark_ops.operators.tasks.run_plan import read_decided
from deepspark_ops.operators.tasks.task_lines import Group, TaskLines
from deepspark_ops.processes.job_log import FAILED, USER_MISTAKE, LineHandler, StageFailed
from deepspark_ops.processes.stage_process import file_trouble
from deepspark_ops.run_index.index_file import read_index, write_index
from deepspark_ops.run_label.label import read_label
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.run_view.stage_status import Status, StatusFile, note_failure
from deepspark_ops.stores.store_path import DataPath, data_path, local_path
from deepspark_ops.tracking.tell import tell_run
from deepspark_ops.troubleshooting import explained

_Execute = TypeVar("_Execute", bound=Callable[..., Any])


@dataclass(frozen=True)
class StageRun:
    """Paths of a run: the first entries of every output of our tasks.

    Attributes:
        run_dir: The run's folder.
        dataset: The dataset to ingest and train on; None trains on the net's own sources.
        production: Weights in production when the run began; None where there are none or the DAG does not use them.
    """

    run_dir: Path
    dataset: DataPath | None
    production: Path | None

    def to_xcom(self) -> dict[str, str | None]:
        """Return plain JSON values."""
        return {key: None if value is None else str(value) for key, value in asdict(self).items()}

    @classmethod
    def of(cls, run: Any, root: Path = Path()) -> StageRun:
        """Return the paths of a run of another task or another DAG.

        Args:
            run: Output of one of our tasks, or the path of the run's folder. What an output does not say is read from
                the folder, where the run's check stage noted it.
            root: Folder that a relative path starts from.

        Raises:
            AirflowFailException: It names no folder.
        """
        values = dict(run) if isinstance(run, Mapping) else {"run_dir": run}
        if not isinstance(values.get("run_dir"), str | Path) or not str(values["run_dir"]).strip():
            shown = (
                f"a mapping of {', '.join(map(str, values)) or 'nothing'}" if isinstance(run, Mapping) else repr(run)
            )
            msg = (
                f"run={shown}: must be the output of one of our tasks, or the path of a run's folder. A task whose"
                " output is empty left no result; clear it together with this task"
            )
            raise AirflowFailException(msg)
        run_dir = root / local_path(str(values["run_dir"]))
        decided = read_decided(run_dir)
        entries = {"dataset": decided.dataset, "production": decided.production, **values}
        dataset = data_path(entries["dataset"]) if entries["dataset"] else None
        return cls(run_dir, dataset, Path(entries["production"]) if entries["production"] else None)

    def config_path(self, stage: str) -> Path:
        """Return the path of a stage's config."""
        return RunPaths(self.run_dir).stages / f"{stage}.json"


def require_training(run_dir: Path) -> None:
    """Refuse a run without a training.

    Raises:
        AirflowFailException: The folder has no config of a training.
    """
    if not RunPaths(run_dir).config.is_file():
        msg = (
            f"run={run_dir}: no training is in this folder; if the folder was removed, clear the task that trains, too;"
            " else give run= the output of the task that trains, such as run=train.output"
        )
        raise AirflowFailException(msg)


def require_folder(run_dir: Path) -> None:
    """Refuse a run without a folder.

    Raises:
        AirflowFailException: The folder is missing.
    """
    if not run_dir.is_dir():
        msg = (
            f"run={run_dir}: there is no such folder; if it was removed, clear the first task of the run, too; else"
            " give run= the output of another task, or the path of a run's folder"
        )
        raise AirflowFailException(msg)


def line_logger(log: logging.Logger) -> LineHandler:
    """Return a handler that writes each line of a job to the task log at the line's level."""

    def on_line(level: int, text: str) -> None:
        log.log(level, "%s", text)

    return on_line


@contextmanager
def noted_stage(
    run_dir: Path, stage: str, log: logging.Logger, *, first_group: Group | None = None
) -> Iterator[LineHandler]:
    """Note a stage's progress and end in the run's folder, for the run's page; raise its errors as Airflow's.

    Args:
        run_dir: The run's folder.
        stage: Word of the stage.
        log: Of the task.
        first_group: Its lines are folded in the log, into this group first; None folds nothing.

    Yields:
        The handler of the stage's lines; it writes them to ``log`` as well.
    """
    task, map_index = _task_of_process()
    file = StatusFile(run_dir, stage, task=task, map_index=map_index)
    lines = TaskLines(log, first=first_group)
    buffer = LineBuffer(lines.line)

    def on_line(level: int, text: str) -> None:
        text = airflow_words(text) if level >= logging.WARNING else text
        buffer.line(level, text)
        file.line(level, text)

    def end(status: Status, message: str = "", *, known: str = "") -> None:
        file.end(status, message)  # first: the log may have to wait for Airflow
        if buffer.end():
            lines.end(known)

    if name := read_label(run_dir).name:
        log.info("run: %s", name)
    try:
        with airflow_errors():
            yield on_line
    except AirflowSkipException as reason:
        end("skipped", str(reason))
        _tell(run_dir, log)
        raise
    except WAITS:
        end("waiting")
        raise
    except AirflowTaskTimeout:
        limit = get_current_context()["ti"].task.execution_timeout
        goes_on = ": the training goes on from its last snapshot" if stage == "train" else ""
        message = (
            f"the task took longer than its execution_timeout, {limit}; give it more time, and clear the task{goes_on}"
        )
        end("failed", message)
        raise AirflowTaskTimeout(message) from None
    except BaseException as error:
        end("failed", str(error) or type(error).__name__, known=str(error))
        if isinstance(error, Exception):  # not one that ends the process: there is no time then
            _tell(run_dir, log)
        raise
    end("finished")
    _tell(run_dir, log)


def _tell(run_dir: Path, log: logging.Logger) -> None:
    """Note the run's summary for lists of runs after a training; notify a configured MLflow."""
    if RunPaths(run_dir).events.is_file():
        with suppress(OSError):
            if read_index(run_dir) is None:
                write_index(run_dir)
        tell_run(run_dir, line_logger(log))


class TaskEnd(SystemExit):
    """The end of a task with the message in the log. Airflow logs the code of an exit, without a traceback."""

    def __init__(self, message: str, code: int) -> None:
        """Keep the message for callbacks, notifiers and listeners of failures."""
        super().__init__(code)
        self.message = message

    def __str__(self) -> str:
        """Return the message."""
        return self.message

    def __repr__(self) -> str:
        """Return the class and the message, for callbacks that print the exception so."""
        return f"TaskEnd({self.message!r})"


def ends_plainly(execute: _Execute) -> _Execute:
    """Let an operator's ``execute`` raise Airflow's errors, and end with a single message without a traceback.

    The message is the last line of the log. Airflow logs the traceback of every exception, ``AirflowFailException``
    included, but not of an exit. Airflow tries an exit again like any failure. A retry policy of the task, set here,
    prevents a retry after a mistake of the user. With ``stage_retries()`` the policy limits a failed stage to
    ``own_retries`` retries, fewer than for a lost task; without it the task's own ``retries`` and ``retry_delay``
    count. Airflow before 3.3 lacks such policies, so mistakes stay exceptions. Outside a running task all errors stay
    exceptions.

    Example::

        class MyOperator(BaseOperator):
            @ends_plainly
            def execute(self, context):
                check_my_input(context["params"])
    """

    @functools.wraps(execute)
    def run(self: Any, context: Any, **more: Any) -> Any:
        try:
            with airflow_errors(), self.store_access() if hasattr(self, "store_access") else nullcontext():
                output = execute(self, context, **more)
        except AirflowSkipException as reason:
            self.log.info("%s", reason)  # Airflow folds its own line
            raise
        except AirflowException as error:
            raise plain_end(self, context, error) from None
        self.output_of_task = output if isinstance(output, Mapping) else {}
        return output

    return cast("_Execute", run)


def plain_end(task: Any, context: Any, error: Exception) -> BaseException:
    """Log the message of a running task's error, and return its end; or return ``error``, which Airflow must see."""
    is_mistake = isinstance(error, AirflowFailException)
    if not is_running_task() or not (is_mistake or type(error) is AirflowException):
        return error  # a skip or a reschedule is no failure
    _note_failure(task, context, str(error))
    message = airflow_words(explained(str(error)))
    if is_mistake and OwnTries is None:
        return type(error)(message)
    _limit_retries(context["ti"].task, is_mistake=is_mistake)
    task.log.error("%s", message)
    return TaskEnd(message, USER_MISTAKE if is_mistake else FAILED)


def _note_failure(task: Any, context: Any, message: str) -> None:
    """Note a failure for the page of the DAG run: before the stage began, or in the folder of another DAG's run.

    A stage notes every other failure itself.
    """
    if not hasattr(task, "run_dir"):
        return  # an operator of a user
    with suppress(AirflowFailException, ConfigError):  # the task has no run
        run_dir, dag_run = task.run_dir(context), context["dag_run"]
        own_folder = task.places.run_folder(dag_run.dag_id, dag_run.run_id)
        task_id, map_index = _task_of_process()
        has_folder = task.starts_run or task.makes_run or run_dir.is_dir()
        has_page = has_folder and is_shown(task.places, dag_run.dag_id, dag_run.run_id, run_dir)
        folder = run_dir if has_page else own_folder
        note_failure(folder, task.stage, message, task=task_id, map_index=map_index)


def is_running_task() -> bool:
    """Return whether this process runs a task now; a parsed DAG file is no running task."""
    try:
        get_current_context()
    except RuntimeError:
        return False
    return True


def _task_of_process() -> tuple[str, int]:
    """Return id and map index of the task that this process runs; an empty id outside a task."""
    if not is_running_task():
        return "", -1
    instance = get_current_context()["ti"]
    map_index = getattr(instance, "map_index", None)
    return instance.task_id, -1 if map_index is None else map_index


def _limit_retries(task: Any, *, is_mistake: bool) -> None:
    """Prevent retries after a mistake of the user; limit the retries of a task with ``stage_retries()``."""
    if is_mistake:
        task.retry_policy = OwnTries(0, OWN_DELAY)
    elif OwnTries is not None and isinstance(task.retry_policy, OwnTries):
        task.retry_policy = OwnTries(own_retries(task), OWN_DELAY)


@contextmanager
def airflow_errors() -> Iterator[None]:
    """Turn a stage's error into Airflow's, with the whole message.

    A mistake of the user fails the task at once; Airflow may try another failure again.
    """
    try:
        yield
    except (ConfigError, DataError, CaffeImportError) as error:
        raise AirflowFailException(airflow_words(str(error))) from None
    except ModuleNotFoundError as error:
        raise AirflowFailException(missing_extra(error) or str(error)) from error
    except StageFailed as error:
        kind = AirflowFailException if error.is_user_mistake else AirflowException
        raise kind(airflow_words(str(error))) from None
    except DeepSparkError as error:
        raise AirflowException(airflow_words(str(error))) from None
    except OSError as error:
        if (trouble := file_trouble(error)) is None:
            raise
        exit_code, message = trouble
        kind = AirflowFailException if exit_code == USER_MISTAKE else AirflowException
        raise kind(message) from None
