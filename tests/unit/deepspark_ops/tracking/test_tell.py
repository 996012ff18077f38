"""Telling from the side of a task: nothing without MLflow's variable, and at most a warning with it.

A package ``mlflow`` of a few lines stands for the client: no MLflow is needed here. ``tests/integration/tracking`` uses
the real client.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from caffe_import import extras
from deepspark_ops.tracking.tell import tell_model, tell_run
from tests.unit.deepspark_ops.run_view.run_events import RUN, lines


class Lines(list):
    """Takes the lines of a telling."""

    def __call__(self, level: int, text: str) -> None:
        self.append((level, text))


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "events.jsonl").write_bytes(lines(RUN))
    return folder


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return what puts a package ``mlflow`` with the given code in its place."""
    folder = tmp_path / "packages" / "mlflow"
    folder.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.setenv("PYTHONPATH", str(folder.parent))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://ada:geheim@127.0.0.1:5000")

    def write(code: str) -> None:
        (folder / "__init__.py").write_text(code)

    return write


def test_without_the_variable_nothing_is_started_and_nothing_is_said(run_dir: Path, monkeypatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def refuse(*_: object, **__: object) -> None:
        msg = "a process was started"
        raise AssertionError(msg)

    monkeypatch.setattr(subprocess, "Popen", refuse)
    log_lines = Lines()
    tell_run(run_dir, log_lines)
    tell_model(run_dir, log_lines)
    assert log_lines == []
    assert os.listdir(run_dir) == ["events.jsonl"]


def test_a_missing_client_is_a_warning_with_the_package(run_dir: Path, monkeypatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    log_lines = Lines()
    tell_run(run_dir, log_lines)
    ((level, text),) = log_lines
    assert level == logging.WARNING
    assert text.startswith(f"MLflow is not told of {run_dir}: MLFLOW_TRACKING_URI needs mlflow, which ")
    assert text.endswith('pip install "deepspark[mlflow]"')


@pytest.mark.slow
def test_a_client_that_hangs_is_ended_and_is_a_warning(run_dir: Path, stand_in, monkeypatch) -> None:
    clients: list[subprocess.Popen] = []

    class NotedClient(subprocess.Popen):
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)
            clients.append(self)

    monkeypatch.setattr(subprocess, "Popen", NotedClient)
    stand_in("import time; time.sleep(600)")
    log_lines, begun = Lines(), time.monotonic()
    tell_run(run_dir, log_lines, timeout_s=2.0)  # the client hangs in its imports on a loaded machine
    assert time.monotonic() - begun < 300
    ((level, text),) = log_lines
    assert level == logging.WARNING
    assert text == (
        f"MLflow was not told all of {run_dir}: it took more than 2 s and was ended. Nothing else depends on it; "
        f"to try again: deepspark track {run_dir}"
    )
    assert [client.returncode for client in clients] == [-signal.SIGKILL]


def test_the_client_is_another_process_and_its_message_comes_back_without_secrets(run_dir: Path, stand_in) -> None:
    stand_in(
        "import os, sys\n"
        "print('asking', os.environ['MLFLOW_TRACKING_URI'], 'for', os.environ['MLFLOW_HTTP_REQUEST_TIMEOUT'], 's')\n"
        "print(sys.argv)\n"
        "raise RuntimeError('no answer of ' + os.environ['MLFLOW_TRACKING_URI'])"
    )
    log_lines = Lines()
    tell_run(run_dir, log_lines)
    assert (logging.INFO, "asking http://***@127.0.0.1:5000 for 10 s") in log_lines
    assert all(level <= logging.WARNING and "geheim" not in text for level, text in log_lines)
    ((_, text),) = [line for line in log_lines if line[0] == logging.WARNING]
    assert "RuntimeError: no answer of http://***@127.0.0.1:5000. Nothing else depends on it" in text
    assert "mlflow" not in sys.modules
