"""Sends a run or a model to MLflow by a child process, with a time limit; a failure is a warning.

MLflow is never loaded into this process, perhaps a process of Airflow. Each transfer sends all data missing in MLflow,
so the next transfer makes up for a failed transfer.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from caffe_import.extras import MissingExtra, require
from deepspark_ops.config.track import TrackConfig
from deepspark_ops.processes.job_log import FAILED, JobLog, LineHandler, StageFailed
from deepspark_ops.processes.spark_submit import job_variables
from deepspark_ops.tracking.configured import TRACKING_URI, client_variables, is_configured, redacted

TELL_TIMEOUT_S: Final = 60.0
"""Time limit of a transfer; sent data stay in MLflow, and the next transfer continues."""
_MAX_MESSAGE_CHARS: Final = 400
"""Characters of MLflow's message in the warning."""


def tell_run(run_dir: Path, on_line: LineHandler, *, timeout_s: float = TELL_TIMEOUT_S) -> None:
    """Send a run after the end of a stage, if MLflow is configured; a failure is a warning."""
    _tell_or_warn(TrackConfig(folder=run_dir, over=True), on_line, timeout_s)


def tell_model(model: Path, on_line: LineHandler, *, timeout_s: float = TELL_TIMEOUT_S) -> None:
    """Send a model's versions and the version in production, if MLflow is configured; a failure is one warning."""
    _tell_or_warn(TrackConfig(folder=model), on_line, timeout_s)


def _tell_or_warn(config: TrackConfig, on_line: LineHandler, timeout_s: float) -> None:
    if not is_configured(os.environ):
        return
    try:
        tell(config, on_line, timeout_s=timeout_s)
    except MissingExtra as error:
        on_line(logging.WARNING, f"MLflow is not told of {config.folder}: {error}")
    except StageFailed as error:
        problem = f"MLflow was not told all of {config.folder}: {error}"
        on_line(
            logging.WARNING, f"{problem}. Nothing else depends on it; to try again: deepspark track {config.folder}"
        )


def tell(config: TrackConfig, on_line: LineHandler, *, timeout_s: float = TELL_TIMEOUT_S) -> None:
    """Send a run or a model to the MLflow of the environment.

    Thread-safe. The client ends with the calling thread.

    Args:
        config: Folder of the run or model.
        on_line: Takes the client's lines, without secrets.
        timeout_s: Time limit in seconds.

    Raises:
        MissingExtra: MLflow's client is not installed.
        StageFailed: Not all data were sent; the message is one line without secrets.
    """
    require("mlflow", part=TRACKING_URI)
    log = JobLog(lambda level, text: None if level >= logging.ERROR else on_line(level, redacted(text, os.environ)))
    exit_code, output = _run_client(config, timeout_s)
    for line in output.splitlines():
        log.feed(line)
    if exit_code:
        error = log.failure("tracking", exit_code)
        raise StageFailed(redacted(_first_line(str(error)), os.environ), exit_code)


def _run_client(config: TrackConfig, timeout_s: float) -> tuple[int, str]:
    """Run the client to the end; return the exit code and output.

    Raises:
        StageFailed: The client could not be started, or took too long.
    """
    with tempfile.TemporaryDirectory(prefix="deepspark-") as folder:
        path = Path(folder, "config.json")
        path.write_text(config.model_dump_json(), encoding="utf-8")
        try:
            # The client itself requests its end with this thread: Python code between fork and exec may hang in a
            # process with many threads, such as a server.
            completed = subprocess.run(
                [sys.executable, "-m", "deepspark_ops.tracking", str(path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                check=False,
                timeout=timeout_s,
                env={**os.environ, **job_variables(os.environ), **client_variables(os.environ)},
            )
        except subprocess.TimeoutExpired:
            msg = f"it took more than {timeout_s:g} s and was ended"
            raise StageFailed(msg, FAILED) from None
        except (OSError, subprocess.SubprocessError) as error:
            msg = f"its client could not be started: {error}"
            raise StageFailed(msg, FAILED) from error
    return completed.returncode, completed.stdout


def _first_line(text: str) -> str:
    line = text.strip().splitlines()[0] if text.strip() else "no message"
    return line if len(line) <= _MAX_MESSAGE_CHARS else f"{line[:_MAX_MESSAGE_CHARS]}..."
