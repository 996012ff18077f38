"""A whole training with driver, server and worker processes, and without Spark: each worker is a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from deepspark_ops.config.train import TrainConfig
from deepspark_ops.devices.in_task import TaskGrant
from deepspark_ops.devices.run_devices import RunDevices
from deepspark_ops.driver_files.file_server import FileServer
from deepspark_ops.exchange import client
from deepspark_ops.exchange.state.grants import Grant, GrantAnswer
from deepspark_ops.exchange.transport.link import WorkerLink
from deepspark_ops.train.driver.served_files import shipped_settings, start_file_server
from deepspark_ops.train.driver.training import Workers, train
from deepspark_ops.train.driver.worker_slots import Slots
from deepspark_ops.train.setup.run import Run
from deepspark_ops.train.worker.outcome import WorkerOutcome
from deepspark_ops.train.worker.spark_task import run_in_task

LIMIT_S = 300.0
Prepare = Callable[[], None]


class NoSignals:
    """In place of ``RunSignals``, which takes over the signals of the process."""

    stopped_by = None

    @contextmanager
    def noted(self) -> Iterator[None]:
        yield

    def take_snapshot_request(self) -> bool:
        return False


def _kill_before_acknowledging(dies_at: int, connect: Callable[..., WorkerLink]) -> Callable[..., WorkerLink]:
    def connected(address: Any, **options: bool) -> WorkerLink:
        link = connect(address, **options)
        acknowledge, request_grant = link.acknowledge, link.request_grant

        def kill_or_acknowledge(grant: Grant) -> bool:
            if grant.stop > dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return acknowledge(grant)

        def kill_or_request(want: int, *, held: Grant | None = None, done: Sequence[Grant] = ()) -> GrantAnswer:
            if any(grant.stop > dies_at for grant in done):
                os.kill(os.getpid(), signal.SIGKILL)
            return request_grant(want, held=held, done=done)

        link.acknowledge = kill_or_acknowledge  # type: ignore[method-assign]
        link.request_grant = kill_or_request  # type: ignore[method-assign]
        return link

    return connected


def _work(
    plain: Mapping[str, Any], worker: int, attempt: int, dies_at: int | None, prepare: Prepare | None, answers: Any
) -> None:
    if dies_at is not None:
        client.connect = _kill_before_acknowledging(dies_at, client.connect)
    if prepare is not None:
        prepare()
    answers.put(run_in_task(plain, worker, attempt, TaskGrant((), 1)))


class ProcessWorkers(Workers):
    """Starts each worker once and after a death ``restarts`` times more; then it is given up."""

    def __init__(self, run: Run, deaths: Mapping[int, int], prepare: Prepare | None, restarts: int) -> None:
        self._run = run
        self._deaths = deaths
        self._prepare = prepare
        self._restarts = restarts
        self._attempts = [0] * run.config.n_workers
        self._spawn = multiprocessing.get_context("spawn")
        self._answers = self._spawn.SimpleQueue()
        self.processes: list[multiprocessing.process.BaseProcess] = []
        self._files: FileServer | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            process.kill()
            process.join(60)
        if self._files is not None:
            self._files.stop()

    def await_start(self) -> None:
        """Nothing to wait for."""

    def pages(self) -> str:
        return ""

    def slots(self) -> Slots | None:
        return None

    def submit(self, settings: Mapping[str, Any]) -> None:
        self._deadline = time.monotonic() + LIMIT_S
        self._files = start_file_server(self._run, settings["address"], settings["start_state"])
        shipped = shipped_settings(self._run.paths, settings, self._files)  # as to Spark's tasks
        self._settings = {**settings, **shipped}
        self.processes = [self._start(worker) for worker in range(self._run.config.n_workers)]

    def _start(self, worker: int) -> multiprocessing.process.BaseProcess:
        how = (self._attempts[worker], self._deaths.get(worker), self._prepare, self._answers)
        process = self._spawn.Process(target=_work, args=(self._settings, worker, *how))
        process.start()
        return process

    def is_busy(self, timeout_s: float) -> bool:
        assert time.monotonic() < self._deadline, "the workers do not end"
        for worker, process in enumerate(self.processes):
            if (process.exitcode or 0) < 0 and self._attempts[worker] < self._restarts:
                self._attempts[worker] += 1
                self.processes[worker] = self._start(worker)
        alive = [process for process in self.processes if process.is_alive()]
        if alive:
            alive[0].join(timeout_s)
        return bool(alive)

    def ended(self) -> list[WorkerOutcome]:
        killed = [worker for worker, process in enumerate(self.processes) if process.exitcode == -signal.SIGKILL]
        last = [worker for worker in killed if self._attempts[worker] == self._restarts]
        return [WorkerOutcome(worker, "given_up", f"worker {worker}: killed") for worker in last]

    def outcomes(self) -> list[WorkerOutcome]:
        outcomes = self.ended()
        while not self._answers.empty():
            outcomes.append(WorkerOutcome(**self._answers.get()))
        return outcomes


def train_in_processes(
    config: TrainConfig,
    *,
    deaths: Mapping[int, int] | None = None,
    prepare: Prepare | None = None,
    restarts: int = 0,
) -> None:
    """Train as the stage does.

    Args:
        config: Of the run.
        deaths: Worker -> clock at which its process is killed (SIGKILL).
        prepare: Called in each worker's process before its work; a function of a module.
        restarts: How often a process that a signal has ended is started again.
    """

    def workers(run: Run, devices: RunDevices, address: str) -> Workers:
        return ProcessWorkers(run, deaths or {}, prepare, restarts)

    train(config, NoSignals(), workers)  # type: ignore[arg-type]
