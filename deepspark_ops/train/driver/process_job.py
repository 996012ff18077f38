"""Training with a process of this host for each worker, without Spark. ``training`` is the rest of the driver.

Started as ``python -m deepspark_ops.train.driver.process_job CONFIG.json``. The driver never imports TensorFlow.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from deepspark_ops.devices.in_task import ONE_THREAD
from deepspark_ops.devices.run_devices import RunDevices
from deepspark_ops.errors import TrainingFailed
from deepspark_ops.processes.parent_death import end_with_parent_thread
from deepspark_ops.processes.stage_process import stage_main
from deepspark_ops.train.driver.run_signals import RunSignals
from deepspark_ops.train.driver.training import Workers, train
from deepspark_ops.train.driver.worker_slots import Slots
from deepspark_ops.train.setup.run import Run
from deepspark_ops.train.setup.run_setup import read_config
from deepspark_ops.train.worker.outcome import WorkerOutcome
from deepspark_ops.train.worker.starts import has_start

_LOG = logging.getLogger(__name__)
_KILL_TIMEOUT_S: Final = 10.0


def main(config_path: Path) -> None:
    """Run the stage.

    Raises:
        DeepSparkError, CaffeImportError: One message for the user.
    """
    signals = RunSignals()
    train(read_config(config_path), signals, WorkerProcesses)


class WorkerProcesses(Workers):
    """A child process for each worker, started again after a death. Used by the main thread alone.

    The processes load TensorFlow from the start, while the driver prepares the exchange.
    """

    def __init__(self, run: Run, devices: RunDevices, listen_address: str) -> None:
        """Start a process for each worker; ``submit`` gives the processes their work.

        Args:
            run: The run.
            devices: Devices of each worker, dealt by the driver.
            listen_address: Unused; ``submit`` has the address of the exchange.
        """
        self._run = run
        self._devices = devices
        self._settings = ""
        self._n_failed = 0
        self._attempts = [0] * run.config.n_workers
        self._outcomes: list[WorkerOutcome] = []
        self._processes = {worker: self._start(worker) for worker in range(run.config.n_workers)}

    def __enter__(self) -> WorkerProcesses:
        """Return itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Kill the remaining processes."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(_KILL_TIMEOUT_S)
            _close(process)
        self._processes.clear()

    def await_start(self) -> None:
        """See ``Workers``."""

    def pages(self) -> str:
        """See ``Workers``."""
        return ""

    def submit(self, settings: Mapping[str, Any]) -> None:
        """See ``Workers``."""
        # The secret goes through the pipe, never into a file, an argument or the environment.
        self._settings = json.dumps({**settings, "address": settings["address"].to_plain()})
        for worker, process in self._processes.items():
            self._send(process, worker)

    def slots(self) -> Slots | None:
        """See ``Workers``; each worker has its process, so that no slot is missing."""
        config = self._run.config
        if self._n_failed > config.worker_tries * config.n_workers and not has_start(self._run.paths.work):
            msg = (
                f"the workers' processes ended {self._n_failed} times, and no process came as far as the worker's code;"
                " the lines above have the reason"
            )
            raise TrainingFailed(msg)
        return None

    def is_busy(self, timeout_s: float) -> bool:
        """See ``Workers``."""
        for worker, process in list(self._processes.items()):
            if process.poll() is not None:
                self._take_end(worker, process)
        if not self._processes:
            return False
        with suppress(subprocess.TimeoutExpired):
            next(iter(self._processes.values())).wait(timeout_s)
        return True

    def ended(self) -> list[WorkerOutcome]:
        """See ``Workers``."""
        return list(self._outcomes)

    def outcomes(self) -> list[WorkerOutcome]:
        """See ``Workers``."""
        return list(self._outcomes)

    def _take_end(self, worker: int, process: subprocess.Popen[str]) -> None:
        """Keep the outcome of a process that has ended; start a process that left no outcome again."""
        assert process.stdout is not None, "opened by _start"
        answer = process.stdout.read()
        _close(process)
        if answer:
            del self._processes[worker]
            self._outcomes.append(WorkerOutcome(**json.loads(answer)))
            return
        self._n_failed += 1
        self._attempts[worker] += 1
        _LOG.warning("worker %d: its process ended by %s; it is started again", worker, _cause(process.returncode))
        self._processes[worker] = self._start(worker)
        self._send(self._processes[worker], worker)

    def _start(self, worker: int) -> subprocess.Popen[str]:
        parent = os.getpid()
        process = subprocess.Popen(
            [sys.executable, "-m", "deepspark_ops.train.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **dict.fromkeys(ONE_THREAD, "1")},
            preexec_fn=lambda: end_with_parent_thread(parent, signal.SIGKILL),
        )
        # A restarted process counts its starts before imports of TensorFlow.
        devices = self._devices.dealt[worker].to_plain() if self._attempts[worker] == 0 else None
        _write(process, json.dumps({"devices": devices}))
        return process

    def _send(self, process: subprocess.Popen[str], worker: int) -> None:
        _write(process, json.dumps({"worker": worker, "attempt": self._attempts[worker]}))
        _write(process, self._settings)


def _write(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None, "opened with a pipe"
    with suppress(BrokenPipeError):  # is_busy sees the end of the process
        process.stdin.write(line + "\n")
        process.stdin.flush()


def _close(process: subprocess.Popen[str]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()


def _cause(code: int) -> str:
    """Return in words how a process ended.

    Example:
        >>> _cause(-9), _cause(1)
        ('SIGKILL', 'exit code 1')
    """
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


if __name__ == "__main__":
    sys.exit(stage_main(main))
