"""One training by the real driver, undisturbed or under a schedule of faults, and what is known of it afterwards."""

from __future__ import annotations

import logging
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
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
from tests.reference.ingest_in_process import ingest
from tests.soak.faults import Done, Fault, Injector
from tests.soak.invariants import (
    Growth,
    descriptor_findings,
    files_of,
    growths,
    left_findings,
    memory_findings,
)
from tests.soak.ledger import CenterCheck, StepCount, check_center, count_steps
from tests.soak.proxy import Proxy
from tests.soak.watch import Life, Watch
from tests.soak.workers import WorkerProcesses

DIGITS = ROOT / "examples" / "digits"
N_WORKERS = 4
N_TESTED = 720
TRANSPORTS = {0: "auto", 1: "auto", 2: "socket", 3: "socket"}
"""Where a worker's address says ``auto`` it maps the center, since it is on the server's host."""
GRANT_TIMEOUT_S, EXCHANGE_TIMEOUT_S = 8.0, 30.0


@dataclass(frozen=True)
class Plan:
    """One run.

    Attributes:
        name: Of its folder.
        max_iter: Its length.
        strategy: Of the exchange.
        tls: As the option.
        faults: What happens to it; None: nothing.
        limit_s: A run that takes longer has hung.
    """

    name: str
    max_iter: int
    strategy: str = "easgd"
    tls: str = "on"
    faults: Iterator[Fault] | None = None
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
        center: The center against what was pushed; None where the strategy is not additive.
        uncertain: Chunks that a killed server was adding; each may be there in part.
        begun: ``time.monotonic`` of the first step.
        done: The faults.
        clock: (time, steps).
        growths: Of memory.
        files: What the run left in its folder.
        n_starts: Processes of workers.
        n_server_starts: Processes of the server.
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
    done: list[Done] = field(default_factory=list)
    clock: list[tuple[float, int]] = field(default_factory=list)
    growths: list[Growth] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    n_starts: int = 0
    n_server_starts: int = 0
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


def run_once(plan: Plan, context: Any, dataset: Path, folder: Path, expected_files: list[str] | None) -> RunResult:
    """Train once, in this thread; the driver's log goes to ``folder``.

    Args:
        plan: The run.
        context: Of ``worker_template``.
        dataset: Of ``make_digits``.
        folder: The run's folder is made in it.
        expected_files: Of an undisturbed run; None for that one.
    """
    result, run_dir = RunResult(plan), folder / plan.name
    with ExitStack() as stack:
        stack.enter_context(_log_to(folder / f"{plan.name}.log"))
        stack.enter_context(_handlers_kept())
        scene = _Scene(plan, context, folder, stack)
        stack.enter_context(mock.patch.object(training, "start_exchange", scene.start_exchange))
        try:
            training.train(_config(plan, dataset, run_dir), RunSignals(), lambda *_: scene.workers)
        except DeepSparkError as error:
            result.findings.append(f"the run failed: {error}")
        scene.stop()
    _judge(result, scene, run_dir, expected_files)
    return result


def _config(plan: Plan, dataset: Path, run_dir: Path) -> TrainConfig:
    tests = max(1, plan.max_iter // 4)
    return TrainConfig(
        solver=DIGITS / "lenet_solver.prototxt",
        overrides=f"max_iter: {plan.max_iter} snapshot: {max(1, plan.max_iter // 3)} test_interval: {tests}"
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
    """What stands around one run: proxies, workers, watch, faults; and copies of what the run takes with it."""

    def __init__(self, plan: Plan, context: Any, folder: Path, stack: ExitStack) -> None:
        self.initial: Vector = np.empty(0, np.float32)
        self.final: Vector = self.initial
        self.chunk = 1
        self.center = Path("none")
        self.restarts = 0
        self.watch: Watch | None = None
        self.injector: Injector | None = None
        self.workers: WorkerProcesses
        self._plan = plan
        self._context = context
        self._folder = folder
        self._stack = stack
        self._ports: dict[int, int] = {}
        self.workers = WorkerProcesses(
            context, N_WORKERS, folder / f"{plan.name}.ledgers", ports=self._ports, transports=TRANSPORTS
        )

    def start_exchange(self, settings: Any, initial: Vector, **options: Any) -> RunningExchange:
        """Stand in for ``launch.start_exchange``: the same, with everything of the soak around it."""
        running = start_exchange(settings, initial, **options)
        assert running.center.path is not None
        self.initial, self.chunk, self.center = initial.copy(), settings.chunk, running.center.path
        address = running.address.host, running.address.port
        proxies = {worker: Proxy(address) for worker in range(N_WORKERS)}
        for worker, proxy in proxies.items():
            self._ports[worker] = proxy.port
            self._stack.callback(proxy.close)
        self.watch = watch = Watch(running, lambda: self.workers.pids)
        if self._plan.faults is not None:
            self.injector = Injector(
                self._plan.faults,
                worker_pids=lambda: self.workers.pids,
                server_pid=lambda: running.pid,
                server_address=address,
                proxies=proxies,
                begun=watch.fault_begun,
                ended=watch.fault_ended,
            )
            watch.when_begun(self.injector.start)
        watch.start()
        stop = running.stop

        def stop_all() -> None:
            """Stop what looks at the center before it is unmapped."""
            self.stop()
            if not len(self.final) and len(running.center.vector):
                self.final, self.restarts = running.center.snapshot(), running.restarts
            stop()

        running.stop = stop_all  # type: ignore[method-assign]
        return running

    def stop(self) -> None:
        if self.injector is not None:
            self.injector.stop()
        if self.watch is not None:
            self.watch.stop()


def _judge(result: RunResult, scene: _Scene, run_dir: Path, expected_files: list[str] | None) -> None:
    plan, watch, account = result.plan, scene.watch, scene.workers.account
    if watch is None or watch.status is None or not watch.clock:
        result.findings.append("the run did not begin")
        return
    result.begun, result.clock = watch.clock[0][0], watch.clock
    result.seconds = watch.clock[-1][0] - watch.clock[0][0]
    status, lives = watch.status, watch.lives_until(watch.clock[-1][0], _warmed(scene, run_dir))
    result.acknowledged, result.uncertain = status.acknowledged, status.uncertain_chunks
    result.steps = count_steps(account, plan.max_iter)
    result.n_starts, result.n_server_starts = sum(scene.workers.starts), 1 + scene.restarts
    result.done = scene.injector.done if scene.injector is not None else []
    if isinstance(account.total, np.ndarray):
        spans = [slice(*found) for found in chunk_ranges(len(scene.initial), scene.chunk)]
        result.center = check_center(scene.initial, scene.final, account, spans)
    result.accuracy = last_accuracy(run_dir)
    result.growths, result.files = growths(lives), files_of(run_dir)
    result.findings += _findings(result, lives)
    expected = result.files if expected_files is None else expected_files
    result.findings += left_findings(lives, scene.center, run_dir, expected)


def _warmed(scene: _Scene, run_dir: Path) -> dict[str, list[float]]:
    """Return when workers tested, which builds another graph, and the server had many strangers, each a thread."""
    offset = time.monotonic() - time.time()
    found: dict[str, list[float]] = {}
    for event in read_events(RunPaths(run_dir).events):
        if event.kind == "evaluation":
            found.setdefault(f"worker {event.worker}", []).append(event.time + offset)
    if scene.injector is not None:
        found["server"] = [done.ended for done in scene.injector.done if done.fault.kind == "strangers"]
    return found


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
    """Return that of the run's last test."""
    found = [event for event in read_events(RunPaths(run_dir).events) if event.kind == "evaluation"]
    return float(np.ravel(found[-1].data["accuracy"])[0]) if found else 0.0


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Put signal handlers back: the driver's are for a process of its own."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _log_to(path: Path) -> Iterator[None]:
    """Have everything that is logged in a file, and nothing of it on the terminal."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    before, root.handlers = root.handlers, [handler]
    level = root.level
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.handlers = before
        root.setLevel(level)
        handler.close()
