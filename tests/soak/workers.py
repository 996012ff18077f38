"""Worker processes in place of Spark's tasks: a new process follows a process that dies."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from deepspark_ops.exchange import client
from deepspark_ops.train.driver.training import Workers
from deepspark_ops.train.driver.worker_slots import Slots
from deepspark_ops.train.worker.outcome import WorkerOutcome
from tests.soak.ledger import Account, NotedLink

ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
"""Of the process that workers are forked from: they compute as Spark's tasks do."""


@contextmanager
def worker_template() -> Iterator[multiprocessing.context.ForkServerContext]:
    """Give a context whose processes are forked from a process that has imported TensorFlow and computed nothing."""
    old_environment = dict(os.environ)
    os.environ.update(ENVIRONMENT)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.soak.workers", "deepspark_ops.train.worker.process"])
    forkserver.ensure_running()  # drivers are forked, and share it
    try:
        yield context
    finally:
        forkserver._forkserver._stop()  # else it stays as long as this process
        os.environ.clear()
        os.environ.update(old_environment)


class WorkerProcesses(Workers):
    """Workers as processes; a worker starts again until a process reports an ending.

    Attributes:
        account: Ledgers of the processes that have ended.
        starts: How often each worker was started.
        lock: Held while the account changes, or a process starts.
    """

    def __init__(
        self, context: Any, n_workers: int, folder: Path, *, ports: Mapping[int, int], transports: Mapping[int, str]
    ) -> None:
        """Start nothing yet.

        Args:
            context: Of ``worker_template``.
            n_workers: How many.
            folder: For ledgers and the workers' log.
            ports: Worker -> port of its proxy.
            transports: Worker -> transport that its address says.
        """
        self.account = Account()
        self.starts = [0] * n_workers
        self.failures: list[str] = []
        self._context = context
        self._folder = folder
        self._ports = ports
        self._transports = transports
        self.lock = threading.Lock()
        self._is_over = threading.Event()
        self._processes: dict[int, Any] = {}
        self._outcomes: dict[int, WorkerOutcome] = {}
        self._threads: list[threading.Thread] = []

    @property
    def pids(self) -> dict[int, int]:
        """Worker -> process id, of running workers."""
        with self.lock:
            return {worker: process.pid for worker, process in self._processes.items() if process.is_alive()}

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        with self.lock:
            processes = list(self._processes.values())
        for process in processes:
            process.kill()
        for thread in self._threads:
            thread.join(30)

    def await_start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)

    def pages(self) -> str:
        return ""

    def slots(self) -> Slots | None:
        return None

    def submit(self, settings: Mapping[str, Any]) -> None:
        self._threads = [
            threading.Thread(target=self._keep, args=(worker, dict(settings)), daemon=True)
            for worker in range(len(self.starts))
        ]
        for thread in self._threads:
            thread.start()

    def is_busy(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return any(thread.is_alive() for thread in self._threads)

    def ended(self) -> list[WorkerOutcome]:
        return self.outcomes()

    def outcomes(self) -> list[WorkerOutcome]:
        return [self._outcomes[worker] for worker in sorted(self._outcomes)]

    def _keep(self, worker: int, settings: dict[str, Any]) -> None:
        """Start a worker again and again until it has an outcome, as Spark does with a failed task."""
        address = settings["address"]
        settings["address"] = replace(address, port=self._ports[worker], transport=self._transports[worker])
        while not self._is_over.is_set():
            folder = self._folder / f"worker_{worker}_{self.starts[worker]}"
            folder.mkdir()
            outcome = self._run(worker, settings, folder)
            with self.lock:
                self.account.take(folder)
            folder.rmdir()
            if outcome is not None:
                self._outcomes[worker] = WorkerOutcome(**outcome)
                return

    def _run(self, worker: int, settings: dict[str, Any], folder: Path) -> dict[str, Any] | None:
        """Run a process to its end; return its result, None for a killed or failed process."""
        receiver, sender = self._context.Pipe(duplex=False)
        arguments = (settings, worker, self.starts[worker], str(folder), str(self._folder / "workers.log"), sender)
        process = self._context.Process(target=work, args=arguments, name=f"soak worker {worker}", daemon=True)
        with self.lock:  # a driver that dies during a start would kill the template
            process.start()
            self._processes[worker] = process
            self.starts[worker] += 1
        sender.close()
        process.join()
        try:
            result = receiver.recv() if receiver.poll() else None
        except EOFError:
            result = None
        receiver.close()
        if result is None or "error" in result:
            if result is not None:
                self.failures.append(f"worker {worker}: {result['error']}")
            return None
        return dict(result)


def work(settings: dict[str, Any], worker: int, attempt: int, folder: str, log: str, sender: Connection) -> None:
    """Run a worker as its Spark task would, in a forked process."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    client.connect = partial(NotedLink, folder=Path(folder), name="link")  # type: ignore[assignment]
    from deepspark_ops.devices.in_task import TaskGrant
    from deepspark_ops.train.worker.spark_task import run_in_task

    try:
        sender.send(run_in_task(settings, worker, attempt, TaskGrant((), 1)))
    except Exception as error:
        sender.send({"error": f"{type(error).__name__}: {error}"})
        raise
