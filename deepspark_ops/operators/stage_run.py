"""What every stage operator shares: the run's folder and paths from XCom, log lines, and errors as Airflow takes them.

XCom carries paths and digests only. The check stage decides them once per run; a task that is cleared later finds the
same ones.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from caffe_import.errors import CaffeImportError
from caffe_import.extras import missing_extra
from deepspark_ops.errors import ConfigError, DataError, DeepSparkError
from deepspark_ops.operators.airflow_names import AirflowException, AirflowFailException, AirflowSkipException
from deepspark_ops.processes.job_log import USER_MISTAKE, LineHandler, StageFailed
from deepspark_ops.processes.stage_process import file_trouble
from deepspark_ops.run_index.index_file import write_index
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.run_view.stage_status import StatusFile


@dataclass(frozen=True)
class StageRun:
    """Paths of one DAG run, as the check stage decided them.

    Attributes:
        run_dir: The run's folder.
        dataset: The dataset to ingest and train on; None trains on the net's own sources.
        production: Weights in production when the run began; None where there are none or the DAG does not use them.
    """

    run_dir: Path
    dataset: Path | None
    production: Path | None

    def to_xcom(self) -> dict[str, str | None]:
        """Return plain JSON values."""
        return {key: None if value is None else str(value) for key, value in asdict(self).items()}

    @classmethod
    def of(cls, context: Mapping[str, Any]) -> StageRun:
        """Return what the run's check stage decided.

        Raises:
            AirflowFailException: The check stage has not run.
        """
        values = context["ti"].xcom_pull(task_ids="check")
        if not values:
            msg = 'task "check" of this run left no result; clear it together with this task'
            raise AirflowFailException(msg)
        dataset, production = (Path(value) if value else None for value in (values["dataset"], values["production"]))
        return cls(Path(values["run_dir"]), dataset, production)

    def config_path(self, stage: str) -> Path:
        """Where the config that a stage ran with is kept."""
        return RunPaths(self.run_dir).stages / f"{stage}.json"


def line_logger(log: logging.Logger) -> LineHandler:
    """Return a handler that writes each line of a job to the task log at the line's own level."""

    def on_line(level: int, text: str) -> None:
        log.log(level, "%s", text)

    return on_line


@contextmanager
def noted_stage(run_dir: Path, stage: str, log: logging.Logger) -> Iterator[LineHandler]:
    """Note in the run's folder how far a stage is and how it ends, for the run's page.

    Args:
        run_dir: The run's folder.
        stage: Id of the task.
        log: Of the task.

    Yields:
        The handler of the stage's lines; it writes them to ``log`` as well.
    """
    file = StatusFile(run_dir, stage)
    to_log = line_logger(log)

    def on_line(level: int, text: str) -> None:
        to_log(level, text)
        file.line(level, text)

    try:
        yield on_line
    except AirflowSkipException as reason:
        file.end("skipped", str(reason))
        raise
    except BaseException as error:
        file.end("failed", str(error) or type(error).__name__)
        if isinstance(error, Exception):  # not one that ends the process: there is no time then
            _index(run_dir)
        raise
    file.end("finished")
    _index(run_dir)


def _index(run_dir: Path) -> None:
    """Note what a list of runs shows of this one, once it has trained."""
    if RunPaths(run_dir).events.is_file():
        with suppress(OSError):
            write_index(run_dir)


@contextmanager
def airflow_errors() -> Iterator[None]:
    """Turn a stage's error into Airflow's, keeping its message whole.

    What only the user can correct fails the task at once; anything else may be tried again.
    """
    try:
        yield
    except (ConfigError, DataError, CaffeImportError) as error:
        raise AirflowFailException(str(error)) from None
    except ModuleNotFoundError as error:
        raise AirflowFailException(missing_extra(error) or str(error)) from error
    except StageFailed as error:
        kind = AirflowFailException if error.is_user_mistake else AirflowException
        raise kind(str(error)) from None
    except DeepSparkError as error:
        raise AirflowException(str(error)) from None
    except OSError as error:
        if (told := file_trouble(error)) is None:
            raise
        exit_code, message = told
        kind = AirflowFailException if exit_code == USER_MISTAKE else AirflowException
        raise kind(message) from None
