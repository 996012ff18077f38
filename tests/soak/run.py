"""A training by the real driver, undisturbed or under a schedule of faults, and its result.

Each driver is a process of its own. A killed driver leaves an account in a file, as of this moment; the same command
starts again.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import DeepSparkError
from deepspark_ops.events import read_events
from deepspark_ops.exchange.server.launch import RunningExchange, start_exchange
from deepspark_ops.param_vector import Vector, chunk_ranges
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.train.driver import training
from deepspark_ops.train.driver.run_signals import RunSignals
from tests.paths import ROOT
from tests.processes import descendants, is_alive
from tests.reference.ingest_in_process import ingest
from tests.soak.faults import Fault, InjectedFault, Injector
from tests.soak.invariants import (
    Growth,
    descriptor_findings,
    file_findings,
    files_of,
    growths,
    left_findings,
    memory_findings,
)
from tests.soak.ledger import Account, CenterCheck, StepCount, check_center, count_steps
from tests.soak.proxy import Proxy
from tests.soak.watch import Life, Watch
from tests.soak.workers import WorkerProcesses

DIGITS = ROOT / "examples" / "digits"
N_WORKERS = 4
N_TESTED = 720
TRANSPORTS = {0: "auto", 1: "auto", 2: "socket", 3: "socket"}
"""Where a worker's address says ``auto`` it maps the center, since it is on the server's host."""
GRANT_TIMEOUT_S, EXCHANGE_TIMEOUT_S = 8.0, 30.0
SERVER_LEAVES_S = 30.0
"""A server ends with its driver at once; on a busy machine it takes some seconds."""


@dataclass(frozen=True)
class Plan:
    """One run.

    Attributes:
        name: Of its folder.
        max_iter: Its length.
        strategy: Of the exchange.
        tls: As the option.
        faults: From the number of a driver to what happens while it lives; None: nothing.
        n_snapshots: How many it takes: from the last one a new driver goes on.
        limit_s: A driver that lives longer has hung.
    """

    name: str
    max_iter: int
    strategy: str = "easgd"
    tls: str = "on"
    faults: Callable[[int], Iterator[Fault]] | None = None
    n_snapshots: int = 10
    limit_s: float = 3_600.0


@dataclass
class RunResult:
    """What came of it.

    Attributes:
        plan: The run's.
        seconds: From the first step to the end.
        accuracy: Of the center on the test split, at the end.
        steps: How the clock was counted by the workers.
        acknowledged: By the server, at the end.
        center: The center against what was pushed since the last driver's start; None where the strategy is not
            additive.
        uncertain: Chunks that a killed server was adding; each may be there in part.
        begun: ``time.monotonic`` of the first step.
        injected: The faults.
        clock: (time, steps).
        growths: Of memory.
        files: What the run left in its folder.
        n_starts: Processes of workers.
        n_server_starts: Processes of the server.
        n_driver_starts: Processes of the driver.
        findings: Everything that must not be, in words.
    """

    plan: Plan
    seconds: float = 0.0
    accuracy: float = 0.0
    steps: StepCount = field(default_factory=lambda: StepCount(0, 0))
    acknowledged: int = 0
    center: CenterCheck | None = None
    uncertain: int = 0
    begun: float = 0.0
    injected: list[InjectedFault] = field(default_factory=list)
    clock: list[tuple[float, int]] = field(default_factory=list)
    growths: list[Growth] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    n_starts: int = 0
    n_server_starts: int = 0
    n_driver_starts: int = 0
    findings: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """Steps of the clock and chunks of the center that are missing, or counted twice, without an explanation."""
        off = 0 if self.center is None else max(0, self.center.off - self.uncertain)
        return self.steps.lost + self.steps.twice + (self.plan.max_iter - self.acknowledged) + off


def make_digits(folder: Path) -> Path:
    """Ingest the digits of the examples, in this process; returns the dataset."""
    source, output = DIGITS / "digits8x8-images-idx3-ubyte.gz", folder / "digits"
    config = IngestConfig(
        source=source, output=output, resize_height=28, resize_width=28, max_pixel=16, test_fraction=0.4
    )
    ingest(config, folder / "ingest")
    shutil.rmtree(folder / "ingest")
    return output


@dataclass
class Part:
    """The facts of a driver, from its start to its end or to the moment before its kill.

    Attributes:
        first: Clock at which it began.
        is_over: Whether it came to its own end.
        snapshot: Iteration of the last snapshot that was whole, 0 for none.
        error: Why the run failed; empty if it did not.
        initial, final: The center at its start and at its end; empty where that is not known.
        chunk: Floats of a chunk.
        center: File of the center.
        restarts: Of its server.
        n_starts: Of its workers' processes.
        account: Ledgers of the workers' processes that had ended.
        acknowledged, uncertain: As its server last said.
        clock: (time, steps).
        lives: Processes.
        injected: The faults.
    """

    first: int = 0
    is_over: bool = False
    snapshot: int = 0
    error: str = ""
    initial: Vector = field(default_factory=lambda: np.empty(0, np.float32))
    final: Vector = field(default_factory=lambda: np.empty(0, np.float32))
    chunk: int = 1
    center: Path = Path("none")
    restarts: int = 0
    n_starts: int = 0
    account: Account = field(default_factory=Account)
    acknowledged: int = 0
    uncertain: int = 0
    clock: list[tuple[float, int]] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    injected: list[InjectedFault] = field(default_factory=list)


def run_once(plan: Plan, context: Any, dataset: Path, folder: Path, expected_files: list[str] | None) -> RunResult:
    """Train once, by as many drivers as are killed; their log goes to ``folder``.

    Args:
        plan: The run.
        context: Of ``worker_template``.
        dataset: Of ``make_digits``.
        folder: The run's folder is made in it.
        expected_files: Of an undisturbed run; None for that one.
    """
    result, parts = RunResult(plan), []
    fork = multiprocessing.get_context("fork")
    ended_as_expected = True
    while ended_as_expected and not (parts and parts[-1].is_over):
        receiver, sender = fork.Pipe(duplex=False)
        arguments = (plan, len(parts), context, dataset, folder, sender)
        driver = fork.Process(target=_drive, args=arguments, name=plan.name)
        driver.start()
        sender.close()
        part = _received(receiver, plan.limit_s)
        if part is None:
            driver.kill()
        driver.join()
        ended_as_expected = part is not None and driver.exitcode == (0 if part.is_over else -signal.SIGKILL)
        if not ended_as_expected:
            result.findings.append(f"driver {len(parts)} ended with code {driver.exitcode}; see its log")
        part = part or Part()
        if not part.is_over:
            result.findings += _left_by_killed(part, folder / f"{plan.name}.ledgers")
        parts.append(part)
    _judge(result, parts, folder / plan.name, expected_files)
    return result


def _received(receiver: Connection, limit_s: float) -> Part | None:
    """Return what a driver says last; None if it said nothing, or not in time."""
    try:
        part: Part | None = receiver.recv() if receiver.poll(limit_s) else None
    except EOFError:
        part = None
    receiver.close()
    return part


def _drive(plan: Plan, number: int, context: Any, dataset: Path, folder: Path, sender: Connection) -> None:
    """Be a driver of the run, in a forked process; send the facts at the end."""
    # The template of the processes is a child of our parent: only the parent may ask whether the template lives.
    forkserver._forkserver.ensure_running = lambda: None
    error = ""
    with ExitStack() as stack:
        stack.enter_context(_log_to(folder / f"{plan.name}.log"))
        scene = _Scene(plan, number, context, folder, stack, sender)
        stack.enter_context(mock.patch.object(training, "start_exchange", scene.start_exchange))
        try:
            training.train(_config(plan, dataset, folder / plan.name), RunSignals(), lambda *_: scene.workers)
        except DeepSparkError as failed:
            error = str(failed)
        scene.stop()
        sender.send(replace(scene.part(), is_over=True, error=error))


def _left_by_killed(part: Part, ledgers: Path) -> list[str]:
    """End what Spark would have ended with the driver, take its ledgers; say what the driver's own has left."""
    server_lives = [life for life in part.lives if life.role == "server"]
    deadline = time.monotonic() + SERVER_LEAVES_S
    while (findings := left_findings(server_lives, part.center)) and time.monotonic() < deadline:
        time.sleep(0.1)
    template = forkserver._forkserver._forkserver_pid
    while workers := [pid for pid in descendants(template) if pid != template and is_alive(pid)]:
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    for ledger_folder in ledgers.glob("worker_*"):
        part.account.take(ledger_folder)
        ledger_folder.rmdir()
    return [f"after the driver's death: {finding}" for finding in findings]


def _config(plan: Plan, dataset: Path, run_dir: Path) -> TrainConfig:
    tests = max(1, plan.max_iter // 4)
    return TrainConfig(
        solver=DIGITS / "lenet_solver.prototxt",
        overrides=f"max_iter: {plan.max_iter} snapshot: {max(1, plan.max_iter // plan.n_snapshots)}"
        f" test_interval: {tests}"
        f" test_iter: {N_TESTED // 60} display: 100",
        dataset=dataset,
        run_dir=run_dir,
        n_workers=N_WORKERS,
        strategy=plan.strategy,
        lock="full",
        tls=plan.tls,
        threads_per_worker=1,
        worker_tries=100,
        grant_timeout_s=GRANT_TIMEOUT_S,
        exchange_timeout_s=EXCHANGE_TIMEOUT_S,
        master="local[4]",
    )


class _Scene:
    """Surroundings of a driver: proxies, workers, watch, faults, and copies of the driver's inputs."""

    def __init__(
        self, plan: Plan, number: int, context: Any, folder: Path, stack: ExitStack, sender: Connection
    ) -> None:
        self._part = Part()
        self._watch: Watch | None = None
        self._injector: Injector | None = None
        self._plan, self._number, self._sender = plan, number, sender
        self._paths = RunPaths(folder / plan.name)
        self._stack = stack
        self._restarts: Callable[[], int] = lambda: 0
        self._ports: dict[int, int] = {}
        self.workers = WorkerProcesses(
            context, N_WORKERS, folder / f"{plan.name}.ledgers", ports=self._ports, transports=TRANSPORTS
        )

    def start_exchange(self, settings: Any, initial: Vector, **options: Any) -> RunningExchange:
        """Stand in for ``launch.start_exchange``: the same, with everything of the soak around it."""
        running = start_exchange(settings, initial, **options)
        assert running.center.path is not None
        self._part = Part(
            first=settings.schedule.first, initial=initial.copy(), chunk=settings.chunk, center=running.center.path
        )
        address = running.address.host, running.address.port
        proxies = {worker: Proxy(address) for worker in range(N_WORKERS)}
        for worker, proxy in proxies.items():
            self._ports[worker] = proxy.port
            self._stack.callback(proxy.close)
        self._watch = watch = Watch(running, lambda: self.workers.pids)
        if self._plan.faults is not None:
            self._injector = Injector(
                self._plan.faults(self._number),
                worker_pids=lambda: self.workers.pids,
                server_pid=lambda: running.pid,
                server_address=address,
                proxies=proxies,
                kill_driver=self._kill_this_process,
                begun=watch.fault_begun,
                ended=watch.fault_ended,
            )
            watch.when_begun(self._injector.start)
        watch.start()
        stop = running.stop

        def stop_all() -> None:
            """Stop what looks at the center before it is unmapped."""
            self.stop()
            if not len(self._part.final) and len(running.center.vector):
                self._part.final, self._part.restarts = running.center.snapshot(), running.restarts
            stop()

        running.stop = stop_all  # type: ignore[method-assign]
        self._restarts = lambda: running.restarts
        return running

    def stop(self) -> None:
        if self._injector is not None:
            self._injector.stop()
        if self._watch is not None:
            self._watch.stop()

    def part(self) -> Part:
        """Return what is known now."""
        watch, injector = self._watch, self._injector
        if watch is None:
            return self._part
        status, clock, injected = watch.status, list(watch.clock), [] if injector is None else list(injector.injected)
        warmed = _warmed(injected, self._paths.events)
        return replace(
            self._part,
            snapshot=max(self._paths.snapshot_iterations(), default=0),
            n_starts=sum(self.workers.starts),
            account=self.workers.account,
            acknowledged=0 if status is None else status.acknowledged,
            uncertain=0 if status is None else status.uncertain_chunks,
            clock=clock,
            lives=watch.lives_until(clock[-1][0] if clock else time.monotonic(), warmed),
            injected=injected,
        )

    def _kill_this_process(self, injected: InjectedFault) -> bool:
        """Die as a driver does, unless the next driver would begin at the same clock, or find nothing to do."""
        if not self._part.first < max(self._paths.snapshot_iterations(), default=0) < self._plan.max_iter:
            return False
        with self.workers.lock:  # whose account must not change any more
            injected.ended = time.monotonic()
            part = self.part()
            self._sender.send(replace(part, restarts=self._restarts(), injected=[*part.injected, injected]))
            os.kill(os.getpid(), signal.SIGKILL)
        return True


def _judge(result: RunResult, parts: Sequence[Part], run_dir: Path, expected_files: list[str] | None) -> None:
    result.findings += [f"the run failed: {part.error}" for part in parts if part.error]
    result.n_driver_starts = len(parts)
    result.clock = [point for part in parts for point in part.clock]
    if not result.clock:
        result.findings.append("the run did not begin")
        return
    if not len(parts[-1].initial) and result.plan.max_iter in RunPaths(run_dir).snapshot_iterations():
        # The previous driver was killed after its last snapshot: nothing was left to do.
        parts = [*parts[:-2], replace(parts[-2], acknowledged=result.plan.max_iter)]
    last, lives = parts[-1], [life for part in parts for life in part.lives]
    result.begun = result.clock[0][0]
    result.seconds = result.clock[-1][0] - result.begun
    result.acknowledged, result.uncertain = last.acknowledged, last.uncertain
    result.n_starts = sum(part.n_starts for part in parts)
    result.n_server_starts = sum(1 + part.restarts for part in parts)
    result.injected = [injected for part in parts for injected in part.injected]
    for part, following in pairwise(parts):
        _join_parts(result, part, following)
    stops = [*(part.first for part in parts[1:]), result.plan.max_iter]
    counts = [count_steps(part.account, part.first, stop) for part, stop in zip(parts, stops, strict=True)]
    result.steps = StepCount(sum(count.lost for count in counts), sum(count.twice for count in counts))
    if isinstance(last.account.total, np.ndarray) and len(last.final):
        spans = [slice(*bounds) for bounds in chunk_ranges(len(last.initial), last.chunk)]
        result.center = check_center(last.initial, last.final, last.account, spans)
    result.accuracy = last_accuracy(run_dir)
    result.growths, result.files = growths(lives), files_of(run_dir)
    result.findings += _findings(result, lives)
    result.findings += left_findings(lives, *(part.center for part in parts))
    if expected_files is not None and last.is_over:  # a run that was broken off leaves what the next driver reads
        result.findings += file_findings(run_dir, expected_files)


def _join_parts(result: RunResult, part: Part, following: Part) -> None:
    """See where the next driver went on from, and when the run did."""
    if following.first < part.snapshot:
        text = f"a driver went on from {following.first}, although the snapshot of {part.snapshot} was whole"
        result.findings.append(text)
    death = part.injected[-1]
    if following.clock:
        death.clock_s = following.clock[0][0] - death.ended
        death.stall_s = following.clock[0][0] - part.clock[-1][0]


def _warmed(injected: Sequence[InjectedFault], events: Path) -> dict[str, list[list[float]]]:
    """Return when workers tested, which builds another graph, and the server had a snapshot or strangers.

    A snapshot takes copies of all states, and each of many strangers a thread.
    """
    offset = time.monotonic() - time.time()
    tests: dict[str, list[float]] = {}
    snapshots = []
    for event in read_events(events):
        if event.kind == "evaluation":
            tests.setdefault(f"worker {event.worker}", []).append(event.time + offset)
        elif event.kind == "snapshot":
            snapshots.append(event.time + offset)
    strangers = [fault.ended for fault in injected if fault.fault.kind == "strangers"]
    return {"server": [snapshots, strangers], **{role: [times] for role, times in tests.items()}}


def _findings(result: RunResult, lives: list[Life]) -> list[str]:
    findings = []
    if result.acknowledged != result.plan.max_iter:
        findings.append(f"the clock ended at {result.acknowledged} of {result.plan.max_iter}")
    if result.steps.lost or result.steps.twice:
        findings.append(f"{result.steps.lost} steps are in no grant, {result.steps.twice} are done twice")
    check = result.center
    if check is not None and check.off > result.uncertain:
        findings.append(
            f"{check.off} chunks of the center are not the sum of what was pushed (off by up to {check.worst:.3g});"
            f" killed servers explain {result.uncertain}"
        )
    return [*findings, *memory_findings(result.growths), *descriptor_findings(lives)]


def last_accuracy(run_dir: Path) -> float:
    """Return the accuracy of the run's last test."""
    evaluations = [event for event in read_events(RunPaths(run_dir).events) if event.kind == "evaluation"]
    return float(np.ravel(evaluations[-1].data["accuracy"])[0]) if evaluations else 0.0


@contextmanager
def _log_to(path: Path) -> Iterator[None]:
    """Log everything into a file, and nothing to the terminal."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    old_handlers, root.handlers = root.handlers, [handler]
    level = root.level
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.handlers = old_handlers
        root.setLevel(level)
        handler.close()
