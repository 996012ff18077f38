"""A run of a virtual cluster in this process: nets, data, strategies and center of training, with planned times."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from caffe_import.files.prototxt import format_message, merge_solver
from caffe_import.proto import caffe_pb2
from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.simulate import VirtualRunConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.devices.assigned import AssignedDevices
from deepspark_ops.errors import ConfigError, PushRefused, TrainingFailed
from deepspark_ops.exchange.comm_period import CommPeriod
from deepspark_ops.exchange.local_exchange import LocalExchange
from deepspark_ops.exchange.settings import ExchangeSettings
from deepspark_ops.exchange.transport.link import ExchangeStatus, Welcome
from deepspark_ops.param_vector import Vector
from deepspark_ops.planning.simulator import Crew, Hardware, host_cost, socket_cost
from deepspark_ops.run_view.series import net_outputs
from deepspark_ops.simulation.cluster import Cluster, StepTimes
from deepspark_ops.simulation.results import CurvePoint, VirtualResult, main_figure
from deepspark_ops.simulation.virtual_link import VirtualCenter, VirtualLink
from deepspark_ops.simulation.virtual_time import VirtualTime, WorkerDied, WorkerTime
from deepspark_ops.train.data.batch_source import Feeds
from deepspark_ops.train.data.batches import Ring
from deepspark_ops.train.setup.run import PreparedRun, Run
from deepspark_ops.train.setup.run_setup import prepare_run
from deepspark_ops.train.snapshots.snapshot import vector_digest
from deepspark_ops.train.snapshots.start import exchange_settings, plan_start
from deepspark_ops.train.worker.ending import to_its_end
from deepspark_ops.train.worker.net.model import StepReport
from deepspark_ops.train.worker.net.tf_devices import set_up_worker
from deepspark_ops.train.worker.net.tf_model import TfModel, compile_nets
from deepspark_ops.train.worker.outcome import WorkerOutcome
from deepspark_ops.train.worker.process import train_worker
from deepspark_ops.train.worker.task import loop_plan, with_state


def run_virtual(config: VirtualRunConfig, scratch: Path) -> VirtualResult:
    """Train to the end.

    Args:
        config: The run and its cluster.
        scratch: Folder of the run, which is made and removed again.

    Raises:
        ConfigError, DataError, CaffeImportError: What the user must correct.
    """
    began = time.monotonic()
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        prepared = prepare_run(train_config(config, scratch))
        finished = _Crew(config, prepared).run()
        return finished.result(config, host_s=time.monotonic() - began)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def train_config(config: VirtualRunConfig, run_dir: Path) -> TrainConfig:
    """Return the options of the same run with real workers, without snapshots and loss lines."""
    changed = merge_solver(caffe_pb2.SolverParameter(), config.overrides)
    changed.snapshot, changed.snapshot_after_train, changed.display = 0, False, 0
    if config.seed is not None:
        changed.random_seed = config.seed
    same = ("solver", "dataset", "weights", "n_workers", "strategy", "strategy_options", "comm_period", "moving_rate",
            "rate_scale", "overlap", "named_files")  # fmt: skip
    values: dict[str, Any] = {name: getattr(config, name) for name in same}
    values |= {"overrides": format_message(changed), "run_dir": run_dir, "devices": "cpu", "threads_per_worker": 1}
    values["grant_timeout_s"] = 1e9  # a slow virtual worker is not silent
    return parse_config(TrainConfig, values)


def cluster_of(config: VirtualRunConfig, settings: ExchangeSettings, seed: int) -> Cluster:
    """Return the cluster of a run; in a tree of centers, the workers of a host share a center."""
    hardware = Hardware(bandwidth_bytes=config.bandwidth_bytes, latency_s=config.latency_s)
    strategy = settings.running_strategy()
    has_tree = strategy.root_level is not None
    return Cluster(
        crew=Crew(
            n_workers=config.n_workers,
            step_s=config.step_ms / 1e3,
            comm_period=1,
            spread=config.speed_spread,
            jitter=config.step_jitter,
        ),
        cost=socket_cost(
            settings.n_params,
            strategy,
            hardware,
            wire_dtype="float32",
            n_servers=1,
            has_grant=not has_tree,
        ),
        host_cost=host_cost(settings.n_params, strategy, hardware) if has_tree else None,
        stragglers=config.stragglers,
        straggler_factor=config.straggler_factor,
        deaths=config.deaths,
        restart_s=config.restart_s,
        seed=seed,
    )


class VirtualModel(TfModel):
    """A worker's model whose steps take virtual time."""

    def __init__(self, time: WorkerTime, step_times: StepTimes, run: Run, **options: Any) -> None:
        """Take the worker's time, the times of its steps, and the arguments of ``TfModel``."""
        self.time, self.step_times = time, step_times
        super().__init__(run, **options)

    def run(self, *, step: int, n_steps: int, rate_scale: float, feeds: Feeds) -> StepReport:
        """See ``Model``."""
        report = super().run(step=step, n_steps=n_steps, rate_scale=rate_scale, feeds=feeds)
        self.time.sleep(self.step_times.seconds(n_steps))
        return report

    def step_of(self, step: int, feeds: Feeds) -> Callable[[Vector], Vector]:
        """See ``Model``; each measurement takes the time of a step."""
        measured = super().step_of(step, feeds)

        def timed(params: Vector) -> Vector:
            subtracted = measured(params)
            self.time.sleep(self.step_times.seconds(1))
            return subtracted

        return timed

    def gradient(self, *, step: int, rate_scale: float, feeds: Feeds) -> tuple[Vector, StepReport]:
        """See ``GradientSource``."""
        gradient_and_report = super().gradient(step=step, rate_scale=rate_scale, feeds=feeds)
        self.time.sleep(self.step_times.seconds(1))
        return gradient_and_report


@dataclass(frozen=True)
class FinishedRun:
    """A run at its end.

    Attributes:
        run: What ran.
        center: Parameters at its end, (n_params,).
        cluster: Where.
        virtual: What the links have counted; its exchange is closed.
        status: The exchange's last word.
        outcomes: Of each worker.
        comm_period: tau at the end, the longest of any worker.
        root_comm_period: tau of hosts, likewise; 0 without a tree of centers.
    """

    run: Run
    center: Vector
    cluster: Cluster
    virtual: VirtualCenter
    status: ExchangeStatus
    outcomes: tuple[WorkerOutcome, ...]
    comm_period: int
    root_comm_period: int

    def result(self, config: VirtualRunConfig, *, host_s: float) -> VirtualResult:
        """Return the result of the run."""
        virtual, status = self.virtual, self.status
        figure = main_figure([event for event in virtual.tests if event.data.get("test_net", 0) == 0])
        curve = tuple(
            CurvePoint(clock=event.clock, virtual_s=event.time, value=value)
            for event in virtual.tests
            if event.data.get("test_net", 0) == 0 and math.isfinite(value := net_outputs(event).get(figure, math.nan))
        )
        n_exchanges = sum(status.exchanges)
        failure = next((outcome.message for outcome in self.outcomes if outcome.ending != "finished"), None)
        virtual_s = virtual.finished_s
        in_rounds = virtual.exchange.settings.running_strategy().round == "all"
        return VirtualResult(
            strategy=config.strategy,
            workers=config.n_workers,
            seed=self.run.random_seed,
            figure=figure,
            accuracy=curve[-1].value if curve and failure is None else None,
            virtual_s=virtual_s,
            clock=status.acknowledged,
            bytes=status.moved_bytes,
            exchanges=n_exchanges,
            comm_period=self.comm_period,
            root_comm_period=self.root_comm_period,
            staleness=sum(status.staleness_sums) / n_exchanges if n_exchanges and not in_rounds else 0.0,
            center_load=min(1.0, virtual.queue.busy_s / virtual_s) if virtual_s else 0.0,
            exchange_share=min(1.0, virtual.exchange_s / (virtual_s * config.n_workers)) if virtual_s else 0.0,
            slow_workers=self.cluster.n_slow,
            reissued_grants=status.reissued_grants,
            host_s=host_s,
            digest=vector_digest(self.center),
            failure=failure,
            curve=curve,
        )


class _RunFailed(Exception):
    """A worker has failed in a way that no other worker can compensate: the run ends for all."""


class _Crew:
    """The virtual workers of a run, in this process; the nets are compiled once."""

    def __init__(self, config: VirtualRunConfig, prepared: PreparedRun) -> None:
        self._config = config
        self._run = run = prepared.run
        if not run.test_nets:
            msg = f"{config.solver}: has no test net, and a simulation compares what one puts out; give it one"
            raise ConfigError(msg)
        start = plan_start(run)
        self._origin = start.origin
        settings = exchange_settings(prepared, start)
        self._cluster = cluster_of(config, settings, run.random_seed)
        self._time = VirtualTime(config.n_workers)
        per_host = config.workers_per_host
        exchange = LocalExchange(settings, start.center, self._time.now, workers_per_host=per_host)
        self._virtual = VirtualCenter(exchange, self._cluster.cost, self._time, self._cluster.host_cost)
        self._devices, _ = set_up_worker(AssignedDevices("cpu", (), 1), run.config, run.plan.n_devices)
        self._nets = compile_nets(run, self._devices)
        self._ring = Ring.of(run.train_layers(), run.train_drawn(), run.solver.iter_size)
        self._outcomes: dict[int, WorkerOutcome] = {}
        self._periods: dict[int, CommPeriod] = {}
        self._root_periods: dict[int, int] = {}

    def run(self) -> FinishedRun:
        """Run all workers to their end."""
        exchange = self._virtual.exchange
        try:
            with suppress(_RunFailed):
                self._time.run([partial(self._live, worker) for worker in range(self._config.n_workers)])
            center, status = exchange.center.snapshot(), exchange.poll()
        finally:
            exchange.close()
            self._run.binding.close()
        if status.failure is not None:
            raise TrainingFailed(status.failure)
        outcomes = tuple(self._outcomes[worker] for worker in sorted(self._outcomes))
        for outcome in outcomes:
            if outcome.ending == "refused":
                raise ConfigError(outcome.message)
        period = max(period.value for period in self._periods.values())
        root_period = max(self._root_periods.values(), default=0)
        return FinishedRun(self._run, center, self._cluster, self._virtual, status, outcomes, period, root_period)

    def _live(self, worker: int) -> None:
        """Run a worker, and run the worker again after each death, until the run ends."""
        cluster, time_ = self._cluster, self._worker_time(worker)
        step_times = cluster.step_times(worker)
        attempt = 0
        while True:
            link = VirtualLink(self._virtual, time_)
            work = partial(self._train, time_, step_times, link, attempt)
            try:
                self._outcomes[worker] = to_its_end(worker, link, work)
            except WorkerDied:
                attempt += 1
                time_.pause(cluster.restart_s)
            except PushRefused as error:
                self._outcomes[worker] = WorkerOutcome(worker, "failed", f"worker {worker}: push refused: {error}")
                break
            else:
                break
        if self._outcomes[worker].ends_the_run:
            raise _RunFailed

    def _worker_time(self, worker: int) -> WorkerTime:
        n_steps = self._run.solver.max_iter - self._origin
        return WorkerTime(self._time, worker, self._cluster.deaths_of(worker, n_steps))

    def _train(
        self, time_: WorkerTime, step_times: StepTimes, link: VirtualLink, attempt: int, welcome: Welcome
    ) -> WorkerOutcome:
        run, worker = self._run, time_.worker
        plan = with_state(loop_plan(run, worker, self._origin), None, attempt=attempt)
        plan = replace(plan, time=time_, asks_ahead=False)  # a request takes no virtual time
        self._periods[worker] = plan.comm_period
        model_type = partial(VirtualModel, time_, step_times, nets=self._nets)
        outcome = train_worker(
            run,
            link,
            plan,
            self._devices,
            attempt=attempt,
            clock=welcome.clock,
            model_type=model_type,
            shared=self._ring,
        )
        self._root_periods[worker] = link.root_comm_period
        return outcome
