"""The one Airflow of a test session: ``deepspark ui``, started by the first test that uses Airflow, shared by all.

Locks ensure the end, whichever process is killed:

- The session (pytest's own process; with ``-n`` it runs no test) holds ``session.lock`` until the last test with
  Airflow is over.
- The first test with Airflow starts ``tests.e2e.keep_airflow`` as a process and waits until Airflow is up; other tests
  wait, too. The keeper runs ``deepspark ui`` and waits for ``session.lock``: the kernel gives it when the session lets
  go or is dead. Then it ends Airflow by SIGTERM, looks at what is left, and writes down what is wrong.
- The keeper holds ``keeper.lock``. The session waits for this lock before its summary: a finding of the keeper fails
  the session.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tests.paths import ROOT

FOLDER_VARIABLE = "DEEPSPARK_TESTS_AIRFLOW"
"""Environment variable with the folder of the session's Airflow; pytest's own process sets it for the others."""
SESSION_LOCK, KEEPER_LOCK, START_LOCK = "session.lock", "keeper.lock", "start.lock"
READY, ENDED, OUTPUT = "ready.json", "ended.json", "ui.log"
START_S, END_S = 240.0, 180.0
_POLL_S = 0.1


class AirflowSession:
    """The session's side. Used by one thread of pytest's own process."""

    def __init__(self, folder: Path) -> None:
        """Make the folder and have every process with tests know it. No Airflow is started."""
        folder.mkdir(parents=True)
        os.environ[FOLDER_VARIABLE] = str(folder)
        self._folder = folder
        self._lock = (folder / SESSION_LOCK).open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def begin_end(self) -> None:
        """Let Airflow end beside whatever else is tested."""
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def end(self) -> list[str]:
        """Wait for the end of a started Airflow, and return the errors."""
        self.begin_end()
        if not self.was_started:
            return []
        with (self._folder / KEEPER_LOCK).open("r+") as lock:
            deadline = time.monotonic() + END_S
            while not _is_ours(lock):
                if time.monotonic() > deadline:
                    return [f"the shared Airflow did not end within {END_S:g} s"]
                time.sleep(_POLL_S)
        ended = self._folder / ENDED
        return json.loads(ended.read_text()) if ended.exists() else ["the keeper of the shared Airflow was killed"]

    @property
    def was_started(self) -> bool:
        """Whether a test needed Airflow."""
        return (self._folder / KEEPER_LOCK).exists()

    def folder_of_failures(self) -> Path:
        """Move the folder to a place that outlives the session, to explain a failed test."""
        return Path(shutil.move(self._folder, tempfile.mkdtemp(prefix="deepspark-tests-failed-")))


def started_airflow() -> tuple[Path, int]:
    """Return folder and port of the session's Airflow, up and running; the first caller of all processes starts
    Airflow.
    """
    folder = Path(os.environ[FOLDER_VARIABLE])
    with locked(folder / START_LOCK):
        if not (folder / KEEPER_LOCK).exists():
            _start_keeper(folder)
        _await_ready(folder)
    return folder, int(json.loads((folder / READY).read_text())["port"])


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock among all processes for the length of a ``with`` block."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_ours(lock: TextIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _start_keeper(folder: Path) -> None:
    with (folder / KEEPER_LOCK).open("w") as lock, (folder / "keeper.log").open("w") as output:
        fcntl.flock(lock, fcntl.LOCK_EX)  # inherited by the keeper, so held from the first moment
        subprocess.run(  # returns at once: the keeper goes on as a child of nobody's
            [sys.executable, "-m", "tests.e2e.keep_airflow", str(folder)],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, pass_fds=[lock.fileno()],
            start_new_session=True,  # Ctrl-C is for the session
            check=True,
        )  # fmt: skip


def _await_ready(folder: Path) -> None:
    deadline = time.monotonic() + START_S
    while not (folder / READY).exists():
        assert not (folder / ENDED).exists(), f"Airflow did not start; {log_texts(folder)}"
        assert time.monotonic() < deadline, f"Airflow was not up within {START_S:g} s; {log_texts(folder)}"
        time.sleep(_POLL_S)


def log_texts(folder: Path) -> str:
    paths = [folder / name for name in ("keeper.log", OUTPUT, ENDED)]
    return "\n".join(f"{path.name}: {path.read_text()[-4000:]}" for path in paths if path.exists())
