"""Stage plan: how a net and solver would run on clusters of many sizes, and what to choose there. No TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from deepspark_ops.config import PlanConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.events import Event, read_events
from deepspark_ops.exchange.simulator import (
    Crew,
    ExchangeCost,
    Hardware,
    Prediction,
    memory_cost,
    saturation_workers,
    simulate,
    socket_cost,
)
from deepspark_ops.exchange.strategies import Strategy, find_strategy
from deepspark_ops.exchange.wire_numbers import WireDtype
from deepspark_ops.param_vector import chunk_ranges
from deepspark_ops.preflight.net_size import NetSize, measure_net
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.train.pacing import EXCHANGE_SHARE, MAX_COMM_PERIOD, smallest_comm_period

PLAN_VERSION: Final = 1
CORE_FLOPS: Final = 75e9
"""Operations per second of one thread in training, where nothing better is known. Measured on two cores with AVX-512:
LeNet 52e9, cifar10_quick 100e9."""
DATA_CORES: Final = 0.02
"""Share of a core that a worker's data thread takes beside its threads of TensorFlow (``benchmarks/plan.py``)."""
MAX_SERVERS: Final = 16
BEARABLE_SHARE: Final = 0.05
"""A recommended choice spends at most this share of the workers' time on exchanges: twice and a half what tau=auto aims
at for an idle center, since queueing is counted here."""
BEARABLE_LOAD: Final = 0.85
"""And leaves the center this idle: real arrivals come in worse order than simulated ones."""

StepSource = Literal["given", "run", "estimate"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Row(_Frozen):
    """The prediction for one number of workers.

    Attributes:
        workers: p.
        comm_period: tau.
        n_servers: Key ranges.
        wire_dtype: Of pushed numbers.
        images_per_s: Over all workers.
        efficiency: The same as a share of p times what one worker computes without exchanges.
        staleness: Exchanges of others between two of one worker, mean.
        staleness_p95: The same, exceeded by one exchange of twenty.
        server_load: Share of the time in which the center is busy, 0 to 1.
        exchange_ms: From the last minibatch of a period to the first of the next, mean.
        exchange_share: The same as a share of the workers' time.
        epoch_s: Seconds per epoch; None if the number of samples is not known.
    """

    workers: int
    comm_period: int
    n_servers: int
    wire_dtype: WireDtype
    images_per_s: float
    efficiency: float
    staleness: float
    staleness_p95: float
    server_load: float
    exchange_ms: float
    exchange_share: float
    epoch_s: float | None


class Advice(_Frozen):
    """What to choose for one number of workers.

    Attributes:
        row: The prediction with it.
        reason: Why this and nothing less.
    """

    row: Row
    reason: str


class PlanReport(_Frozen):
    """The answer of stage plan.

    Attributes:
        format_version: Of this report as JSON.
        solver: The file.
        net: The net's name.
        n_params: Length of the parameter vector.
        images_per_step: Samples of a minibatch.
        epoch_images: Samples of an epoch.
        strategy: What runs, with several workers.
        step_ms: Of one minibatch on a core of its own.
        step_source: ``given``, of a ``run``, or an ``estimate`` by operations.
        saturation_workers: Workers at which the center is busy all the time, with the row's own tau and the options
            as given; more of them only queue.
        rows: One per number of workers, options as given.
        advice: One per number of workers, tau, key ranges and wire dtype chosen.
        notes: What was assumed.
    """

    format_version: int
    solver: str
    net: str
    n_params: int
    images_per_step: int
    epoch_images: int | None
    strategy: str
    step_ms: float
    step_source: StepSource
    saturation_workers: int
    rows: tuple[Row, ...]
    advice: tuple[Advice, ...]
    notes: tuple[str, ...]


class Choice(NamedTuple):
    """What the advice may change."""

    comm_period: int
    n_servers: int
    wire_dtype: WireDtype


def make_plan(config: PlanConfig) -> PlanReport:
    """Return the predictions.

    Raises:
        CaffeImportError: Solver or net.
        ConfigError, DataError: An option, the run or the dataset.
    """
    strategy = find_strategy(config.strategy)
    if strategy.requires.comm_period_one and config.comm_period not in ("auto", 1):
        msg = f"comm_period={config.comm_period}: strategy {strategy.name} exchanges after every minibatch; allowed: 1"
        raise ConfigError(msg)
    size = measure_net(config)
    step_s, source, note = _step_time(config, size)
    planner = _Planner(config, size, strategy, step_s)
    rows = tuple(planner.row(count, planner.given(count)) for count in config.worker_counts)
    return PlanReport(
        format_version=PLAN_VERSION,
        solver=str(config.solver),
        net=size.name,
        n_params=size.n_params,
        images_per_step=size.images_per_step,
        epoch_images=size.epoch_images,
        strategy=strategy.name,
        step_ms=1e3 * step_s,
        step_source=source,
        saturation_workers=planner.saturation(rows[-1]),
        rows=rows,
        advice=tuple(planner.advice(row) for row in rows),
        notes=(*size.notes, *([note] if note else [])),
    )


class _Planner:
    """Simulates one net and solver under varying choices."""

    def __init__(self, config: PlanConfig, size: NetSize, strategy: Strategy, step_s: float) -> None:
        self._config = config
        self._size = size
        self._strategy = strategy
        self._step_s = step_s
        self._hardware = Hardware(
            bandwidth_bytes=config.bandwidth_gbps * 1e9 / 8,
            latency_s=config.latency_us * 1e-6,
            server_bytes=config.server_gbytes_per_s * 1e9,
            memory_bytes=config.memory_gbytes_per_s * 1e9,
            control_s=config.control_us * 1e-6,
            loop_s=config.loop_us * 1e-6,
            cold_bytes=config.cold_gbytes_per_s * 1e9,
        )

    def given(self, n_workers: int) -> Choice:
        """Return the options as given, tau chosen as training would choose it."""
        config = self._config
        n_servers = min(config.n_servers, len(chunk_ranges(self._size.n_params)))  # as training cuts
        if config.comm_period != "auto":
            return Choice(config.comm_period, n_servers, config.wire_dtype)
        return self._with_auto_period(n_workers, Choice(1, n_servers, config.wire_dtype))

    def _with_auto_period(self, n_workers: int, choice: Choice) -> Choice:
        """Return the choice with the smallest tau whose exchange, queueing included, costs little."""
        if self._strategy.requires.comm_period_one:
            return choice
        alone_s = self._cost(n_workers, choice).alone_s
        strategy = self._strategy.for_workers(n_workers)
        if strategy.takes_least_period:
            return choice._replace(comm_period=strategy.least_auto_period)
        low = max(strategy.least_auto_period, smallest_comm_period(self._step_s, alone_s))
        high = MAX_COMM_PERIOD
        while low < high:
            middle = (low + high) // 2
            if self._predict(n_workers, choice._replace(comm_period=middle)).exchange_share <= EXCHANGE_SHARE:
                high = middle
            else:
                low = middle + 1
        return choice._replace(comm_period=low)

    def _cost(self, n_workers: int, choice: Choice) -> ExchangeCost:
        strategy = self._strategy.for_workers(n_workers)
        if self._config.transport == "shm":
            return memory_cost(self._size.n_params, strategy, self._hardware)
        return socket_cost(
            self._size.n_params,
            strategy,
            self._hardware,
            wire_dtype=choice.wire_dtype,
            n_servers=choice.n_servers,
        )

    def _predict(self, n_workers: int, choice: Choice) -> Prediction:
        config = self._config
        crew = Crew(
            n_workers=n_workers,
            step_s=self._step_s,
            comm_period=choice.comm_period,
            spread=config.straggler_spread,
            jitter=config.step_jitter,
            slowdown=self._slowdown(n_workers),
        )
        return simulate(crew, self._cost(n_workers, choice), self._strategy.for_workers(n_workers), seed=config.seed)

    def _slowdown(self, n_workers: int) -> float:
        """Return how many times too few cores the one host has, at least 1."""
        config = self._config
        if not config.host_cores:
            return 1.0
        demand = n_workers * (config.worker_cores or config.threads_per_worker + DATA_CORES)
        return max(1.0, demand / config.host_cores)

    def row(self, n_workers: int, choice: Choice) -> Row:
        """Return the prediction of one choice."""
        found = self._predict(n_workers, choice)
        images_per_s = found.steps_per_s * self._size.images_per_step
        epoch_images = self._size.epoch_images
        return Row(
            workers=n_workers,
            **choice._asdict(),
            images_per_s=images_per_s,
            efficiency=found.steps_per_s * self._step_s / n_workers,
            staleness=found.staleness,
            staleness_p95=found.staleness_p95,
            server_load=found.server_load,
            exchange_ms=1e3 * found.exchange_s,
            exchange_share=found.exchange_share,
            epoch_s=epoch_images / images_per_s if epoch_images else None,
        )

    def saturation(self, row: Row) -> int:
        """Return the number of workers at which the center is busy all the time, with the choice of a row."""
        cost = self._cost(max(2, row.workers), Choice(row.comm_period, row.n_servers, row.wire_dtype))
        return math.floor(saturation_workers(cost, step_s=self._step_s, comm_period=row.comm_period))

    def advice(self, given: Row) -> Advice:
        """Return what costs the least accuracy among what is fast enough: tau last, exact numbers first."""
        n_workers = given.workers
        if n_workers == 1:
            return Advice(row=given, reason="a worker alone pushes what it has: no choice changes its result")
        for choice in self._choices():
            if not self._is_worth_simulating(n_workers, choice):
                continue
            row = self.row(n_workers, choice)
            if row.exchange_share <= BEARABLE_SHARE and row.server_load <= BEARABLE_LOAD:
                return Advice(row=row, reason=self._reason(row))
        choices = self._choices()
        row = max((self.row(n_workers, choice) for choice in choices[-self._n_kinds() :]), key=lambda r: r.images_per_s)
        return Advice(row=row, reason=self._reason_of_excess(row))

    def _choices(self) -> Sequence[Choice]:
        """Return every choice, those first that cost the least: small tau, then exact numbers, then few processes."""
        n_chunks = len(chunk_ranges(self._size.n_params))
        is_shared = self._config.transport == "shm"
        servers = [1] if is_shared else [n for n in (1, 2, 4, 8, MAX_SERVERS) if n <= n_chunks]
        dtypes: list[WireDtype] = ["float32"] if is_shared else ["float32", "bfloat16"]
        fixed = self._strategy.requires.comm_period_one
        least = self._strategy.least_auto_period
        offered = (1, 2, 3, 4, 6, 8, 10, 12, 16, 24, 32, 48, MAX_COMM_PERIOD)
        periods = [1] if fixed else [period for period in offered if period >= least]
        return [Choice(period, n, dtype) for period in periods for dtype in dtypes for n in servers]

    def _n_kinds(self) -> int:
        """Return how many choices share one tau."""
        return len({choice[1:] for choice in self._choices()})

    def _is_worth_simulating(self, n_workers: int, choice: Choice) -> bool:
        """Can it be fast enough? Not if the center is short of time, or the exchange alone takes too long."""
        cost = self._cost(n_workers, choice)
        period_s = choice.comm_period * self._step_s
        limit = saturation_workers(cost, step_s=self._step_s, comm_period=choice.comm_period)
        return n_workers <= max(1.0, BEARABLE_LOAD * limit) and cost.alone_s <= BEARABLE_SHARE * (
            period_s + cost.alone_s
        )

    def _reason(self, row: Row) -> str:
        choice = Choice(row.comm_period, row.n_servers, row.wire_dtype)
        told = [f"exchanges take {row.exchange_share:.1%} of the time, center busy {row.server_load:.0%}"]
        if row.n_servers > 1:
            fewer = choice._replace(n_servers=row.n_servers // 2)
            limit = saturation_workers(self._cost(row.workers, fewer), step_s=self._step_s, comm_period=row.comm_period)
            told.append(f"with half as many key ranges it saturates at {_count(limit)} workers")
        if row.wire_dtype != "float32":
            told.append(
                "halving what is pushed loses nothing, since the worker keeps the rest; a larger tau costs accuracy"
            )
        if row.comm_period > (least := self._strategy.least_auto_period):
            told.append(f"a smaller tau costs over {BEARABLE_SHARE:.0%} or loads the center over {BEARABLE_LOAD:.0%}")
        else:
            told.append(f"tau {least} is the most accurate")
        if (slowdown := self._slowdown(row.workers)) > 1.0:
            cores = self._config.host_cores
            told.append(f"{cores} cores make each worker {slowdown:.2g} times as slow as with enough of them")
        return "; ".join(told)

    def _reason_of_excess(self, row: Row) -> str:
        limit = self.saturation(row)
        if row.workers <= limit:
            return (
                f"nothing keeps exchanges below {BEARABLE_SHARE:.0%} of the time and the center's load below"
                f" {BEARABLE_LOAD:.0%}: {row.exchange_share:.1%} and {row.server_load:.0%} at best; take larger"
                " minibatches, or hosts of more equal speed where workers wait for each other"
            )
        return (
            f"the center saturates at {_count(limit)} workers even so, limited by {self._bottleneck(row)}: more only"
            " queue; take fewer workers with more threads, larger minibatches, or a faster link or host"
        )

    def _bottleneck(self, row: Row) -> str:
        """Return the part of the center that would help most if it took no time."""
        if self._config.transport == "shm":
            return "its control calls"
        now = self._hardware
        without = {
            "its link": replace(now, bandwidth_bytes=math.inf),
            "what its processes move": replace(now, server_bytes=math.inf),
            "its control calls": replace(now, control_s=0.0),
        }
        strategy = self._strategy.for_workers(row.workers)
        served = {
            name: socket_cost(
                self._size.n_params, strategy, hardware, wire_dtype=row.wire_dtype, n_servers=row.n_servers
            ).service_s
            for name, hardware in without.items()
        }
        return min(served, key=lambda name: served[name])


def _count(value: float) -> str:
    return f"{math.floor(value):,}"


def _step_time(config: PlanConfig, size: NetSize) -> tuple[float, StepSource, str]:
    """Return seconds of a minibatch, where they come from, and what to say about it."""
    if config.step_ms is not None:
        return config.step_ms / 1e3, "given", ""
    if config.from_run is not None:
        return run_step_time(config.from_run, size.images_per_step), "run", ""
    if not size.step_flops:
        msg = f"{config.solver}: the net's operations are not known; say how long a minibatch takes (step_ms, from_run)"
        raise ConfigError(msg)
    step_s = size.step_flops / (CORE_FLOPS * config.threads_per_worker)
    note = (
        f"a minibatch is estimated to take {1e3 * step_s:.1f} ms: {size.step_flops / 1e9:.1f} GFLOP, three times the"
        f" forward pass, at {CORE_FLOPS / 1e9:.0f} GFLOP/s per thread; it may be off by a factor of two (step_ms or"
        " from_run say better)"
    )
    return step_s, "estimate", note


def run_step_time(run_dir: Path, images_per_step: int) -> float:
    """Return the seconds of a minibatch in a run, waiting for data included, exchanges left out; the median.

    A loss event tells seconds and images/s of its interval; the first of each worker compiles the graph and is left
    out.

    Raises:
        ConfigError: The run has no loss events to learn from.
    """
    path = RunPaths(run_dir).events
    seen: set[int] = set()
    found = []
    for event in read_events(path):
        if event.kind != "loss":
            continue
        if event.worker in seen and (step_s := _interval_step_time(event, images_per_step)):
            found.append(step_s)
        seen.add(event.worker)
    if not found:
        msg = f"from_run={run_dir}: {path.name} holds no worker's second loss line; give a run that trained for longer"
        raise ConfigError(msg)
    return median(found)


def _interval_step_time(event: Event, images_per_step: int) -> float:
    data = event.data
    try:
        busy_s = float(data["compute_s"]) + float(data["data_s"])
        n_steps = float(data["images_per_s"]) * (busy_s + float(data["exchange_s"])) / images_per_step
    except (KeyError, ValueError):
        return 0.0  # an event of a run before these numbers were told
    return busy_s / n_steps if n_steps else 0.0
