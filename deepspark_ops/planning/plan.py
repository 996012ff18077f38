"""Stage plan: prediction of a run on clusters of many sizes, and advice on options. No TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from deepspark_ops.config.commands.plan import PlanConfig
from deepspark_ops.devices.host_cores import share_of_cores
from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.comm_period import MAX_COMM_PERIOD, smallest_comm_period
from deepspark_ops.exchange.strategies.base import Strategy, configure, find_strategy
from deepspark_ops.exchange.strategies.options import strategies_with
from deepspark_ops.exchange.transport.compression import WireDtype
from deepspark_ops.param_vector import chunk_ranges
from deepspark_ops.planning.accuracy import accuracy_of
from deepspark_ops.planning.net_size import NetSize, measure_net
from deepspark_ops.planning.plan_report import MEASURED_WORKERS, Advice, PlanReport, Row
from deepspark_ops.planning.simulator import (
    Crew,
    ExchangeCost,
    Hardware,
    Prediction,
    TreeCost,
    host_cost,
    memory_cost,
    root_comm_period,
    saturation_workers,
    simulate,
    socket_cost,
)
from deepspark_ops.planning.step_time import step_time

PLAN_VERSION: Final = 2
DATA_CORES: Final = 0.02
"""Share of a core for a worker's data thread, besides TensorFlow's threads (``benchmarks/plan.py``)."""
MAX_SERVERS: Final = 16
BEARABLE_SHARE: Final = 0.05
"""Limit of the exchanges' share in the workers' time for advised choices, with queueing: half the share of tau=auto,
because more servers or fewer bytes keep exchanges frequent."""
BEARABLE_LOAD: Final = 0.85
"""Limit of the center's load for advised choices: real arrivals queue more than simulated arrivals."""


class Choice(NamedTuple):
    """Options that the advice may change."""

    comm_period: int
    n_servers: int
    wire_dtype: WireDtype


def make_plan(config: PlanConfig) -> PlanReport:
    """Return the predictions.

    Raises:
        CaffeImportError: The solver or the net cannot be read.
        ConfigError, DataError: An option, the run or the dataset is wrong.
    """
    strategy = _strategy_of(config)
    if strategy.comm_period_one and config.comm_period not in ("auto", 1):
        msg = f"comm_period={config.comm_period}: strategy {strategy.name} exchanges after every minibatch; allowed: 1"
        raise ConfigError(msg)
    size = measure_net(config)
    step_s, source, note = step_time(config, size)
    planner = _Planner(config, size, strategy, step_s, is_estimated=source == "estimate")
    rows = tuple(planner.row(count, planner.configured(count)) for count in config.worker_counts)
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
        accuracy=tuple(accuracy_of(strategy.name, config.worker_counts)),
        notes=(*size.notes, *([note] if note else []), *_limits_of_measurements(rows)),
    )


def _strategy_of(config: PlanConfig) -> Strategy:
    """Return the strategy; with several workers on a host, in its form with a tree of centers.

    Raises:
        ConfigError: An unknown strategy, or a strategy without such a form.
    """
    strategy = find_strategy(config.strategy)
    if config.workers_per_host == 1:
        return strategy
    if strategy.name not in (names := strategies_with("center")):
        msg = (
            f"workers_per_host={config.workers_per_host}: strategy {strategy.name} has no tree of centers; strategies"
            f" with a tree: {', '.join(names)}"
        )
        raise ConfigError(msg)
    return configure(strategy.name, {"center": "tree"})


def _limits_of_measurements(rows: Sequence[Row]) -> list[str]:
    """Return a note on rows beyond what was measured, if there are any."""
    if not any(row.is_extrapolated for row in rows):
        return []
    return [
        f"rows with * are arithmetic alone: a server was measured with {MEASURED_WORKERS:,} scripted workers, trainings"
        " with 4 on a host (docs/guides/planning.md)"
    ]


class _Planner:
    """Simulates a net and solver with varying choices."""

    def __init__(
        self, config: PlanConfig, size: NetSize, strategy: Strategy, step_s: float, *, is_estimated: bool
    ) -> None:
        self._config = config
        self._size = size
        self._strategy = strategy
        self._one_step_s = step_s
        self._is_estimated = is_estimated
        self._hardware = Hardware(
            bandwidth_bytes=config.bandwidth_gbps * 1e9 / 8,
            latency_s=config.latency_us * 1e-6,
            server_bytes=config.server_gbytes_per_s * 1e9,
            memory_bytes=config.memory_gbytes_per_s * 1e9,
            control_s=config.control_us * 1e-6,
            loop_s=config.loop_us * 1e-6,
            cold_bytes=config.cold_gbytes_per_s * 1e9,
        )

    def configured(self, n_workers: int) -> Choice:
        """Return the configured options; tau=auto as training would choose tau."""
        config = self._config
        n_servers = min(config.n_servers, len(chunk_ranges(self._size.n_params)))  # as training divides the vector
        if config.comm_period != "auto":
            return Choice(config.comm_period, n_servers, config.wire_dtype)
        return self._with_auto_period(n_workers, Choice(1, n_servers, config.wire_dtype))

    def _with_auto_period(self, n_workers: int, choice: Choice) -> Choice:
        """Return the choice with the smallest tau whose exchange, queueing included, costs little."""
        if self._strategy.comm_period_one:
            return choice
        cost, strategy = self._cost(n_workers, choice), self._strategy.for_workers(n_workers)
        share = strategy.most_exchange_share
        # In a tree tau of workers follows the exchanges with the center of the host.
        alone_s, most = (cost.host.alone_s, 2 * share) if isinstance(cost, TreeCost) else (cost.alone_s, share)
        low = max(strategy.least_auto_period, smallest_comm_period(self._step_s(n_workers), alone_s, share))
        if strategy.agrees_on_period:  # a longer tau does not save the wait for other workers
            return choice._replace(comm_period=low)
        high = MAX_COMM_PERIOD
        while low < high:
            middle = (low + high) // 2
            if self._predict(n_workers, choice._replace(comm_period=middle)).exchange_share <= most:
                high = middle
            else:
                low = middle + 1
        return choice._replace(comm_period=low)

    def _cost(self, n_workers: int, choice: Choice) -> ExchangeCost:
        strategy = self._strategy.for_workers(n_workers)
        if self._config.transport == "shm":
            return memory_cost(self._size.n_params, strategy, self._hardware)
        has_tree = strategy.root_level is not None
        cost = socket_cost(
            self._size.n_params,
            strategy,
            self._hardware,
            wire_dtype=choice.wire_dtype,
            n_servers=choice.n_servers,
            has_grant=not has_tree,
        )
        if not has_tree:
            return cost
        of_host = host_cost(self._size.n_params, strategy, self._hardware)
        per_host = min(n_workers, self._config.workers_per_host)
        period = root_comm_period(
            of_host,
            cost,
            period_s=choice.comm_period * self._step_s(n_workers),
            workers_per_host=per_host,
            n_hosts=n_workers / per_host,
            share=strategy.most_exchange_share,
        )
        return TreeCost.of(of_host, cost, per_host, period)

    def _predict(self, n_workers: int, choice: Choice) -> Prediction:
        config = self._config
        crew = Crew(
            n_workers=n_workers,
            step_s=self._step_s(n_workers),
            comm_period=choice.comm_period,
            spread=config.straggler_spread,
            jitter=config.step_jitter,
            slowdown=self._slowdown(n_workers),
        )
        return simulate(crew, self._cost(n_workers, choice), self._strategy.for_workers(n_workers), seed=config.seed)

    def _bearable_share(self, n_workers: int) -> float:
        """Return the limit of the exchanges' share; exchanges of hosts with the root have a share of their own."""
        strategy = self._strategy.for_workers(n_workers)
        return BEARABLE_SHARE + (strategy.most_exchange_share if strategy.root_level is not None else 0.0)

    def _n_threads(self, n_workers: int) -> int:
        return share_of_cores(self._config.threads_per_worker, self._config.host_cores or 1, n_workers)

    def _step_s(self, n_workers: int) -> float:
        """Return the seconds of a minibatch: measured, or estimated from operations with a worker's threads."""
        if self._is_estimated and self._config.threads_per_worker == "auto":
            return self._one_step_s / self._n_threads(n_workers)
        return self._one_step_s

    def _slowdown(self, n_workers: int) -> float:
        """Return the ratio of needed cores to the host's cores, at least 1."""
        config = self._config
        if not config.host_cores:
            return 1.0
        demand = n_workers * (config.worker_cores or self._n_threads(n_workers) + DATA_CORES)
        return max(1.0, demand / config.host_cores)

    def row(self, n_workers: int, choice: Choice) -> Row:
        """Return the prediction of a choice."""
        prediction, cost = self._predict(n_workers, choice), self._cost(n_workers, choice)
        images_per_s = prediction.steps_per_s * self._size.images_per_step
        epoch_images = self._size.epoch_images
        return Row(
            workers=n_workers,
            **choice._asdict(),
            root_comm_period=cost.root_period if isinstance(cost, TreeCost) else 0,
            images_per_s=images_per_s,
            efficiency=prediction.steps_per_s * self._step_s(n_workers) / n_workers,
            staleness=prediction.staleness,
            staleness_p95=prediction.staleness_p95,
            server_load=prediction.server_load,
            exchange_ms=1e3 * prediction.exchange_s,
            exchange_share=prediction.exchange_share,
            epoch_s=epoch_images / images_per_s if epoch_images else None,
        )

    def saturation(self, row: Row) -> int:
        """Return the number of workers that keep the center busy all the time, with the choice of a row."""
        cost = self._cost(max(2, row.workers), Choice(row.comm_period, row.n_servers, row.wire_dtype))
        return math.floor(saturation_workers(cost, step_s=self._step_s(row.workers), comm_period=row.comm_period))

    def advice(self, configured_row: Row) -> Advice:
        """Return the fast enough choice with the least loss of accuracy: small tau first, then exact numbers."""
        n_workers = configured_row.workers
        if n_workers == 1:
            return Advice(row=configured_row, reason="a worker alone pushes what it has: no choice changes its result")
        for choice in self._choices():
            if not self._is_worth_simulating(n_workers, choice):
                continue
            row = self.row(n_workers, choice)
            if row.exchange_share <= self._bearable_share(n_workers) and row.server_load <= BEARABLE_LOAD:
                return Advice(row=row, reason=self._reason(row))
        choices = self._choices()
        row = max((self.row(n_workers, choice) for choice in choices[-self._n_kinds() :]), key=lambda r: r.images_per_s)
        return Advice(row=row, reason=self._reason_of_excess(row))

    def _choices(self) -> Sequence[Choice]:
        """Return every choice, sorted by loss of accuracy: small tau, then exact numbers, then few processes."""
        n_chunks = len(chunk_ranges(self._size.n_params))
        is_shared = self._config.transport == "shm"
        servers = [1] if is_shared else [n for n in (1, 2, 4, 8, MAX_SERVERS) if n <= n_chunks]
        dtypes: list[WireDtype] = ["float32"] if is_shared else ["float32", "bfloat16"]
        fixed = self._strategy.comm_period_one
        least = self._strategy.least_auto_period
        offered = (1, 2, 3, 4, 6, 8, 10, 12, 16, 24, 32, 48, MAX_COMM_PERIOD)
        periods = [1] if fixed else [period for period in offered if period >= least]
        return [Choice(period, n, dtype) for period in periods for dtype in dtypes for n in servers]

    def _n_kinds(self) -> int:
        """Return the number of choices with the same tau."""
        return len({choice[1:] for choice in self._choices()})

    def _is_worth_simulating(self, n_workers: int, choice: Choice) -> bool:
        """Can the choice be fast enough? Not if the center is overloaded, or the exchange alone takes too long."""
        cost = self._cost(n_workers, choice)
        step_s = self._step_s(n_workers)
        period_s = choice.comm_period * step_s
        limit = saturation_workers(cost, step_s=step_s, comm_period=choice.comm_period)
        return n_workers <= max(1.0, BEARABLE_LOAD * limit) and cost.alone_s <= self._bearable_share(n_workers) * (
            period_s + cost.alone_s
        )

    def _reason(self, row: Row) -> str:
        choice = Choice(row.comm_period, row.n_servers, row.wire_dtype)
        reasons = [f"exchanges take {row.exchange_share:.1%} of the time, center busy {row.server_load:.0%}"]
        if row.n_servers > 1:
            fewer = choice._replace(n_servers=row.n_servers // 2)
            step_s, cost = self._step_s(row.workers), self._cost(row.workers, fewer)
            limit = saturation_workers(cost, step_s=step_s, comm_period=row.comm_period)
            reasons.append(f"with half as many key ranges it saturates at {_count(limit)} workers")
        if row.wire_dtype != "float32":
            reasons.append(
                "halving what is pushed loses nothing, since the worker keeps the rest; a larger tau costs accuracy"
            )
        if row.comm_period > (least := self._strategy.least_auto_period):
            reasons.append(
                f"a smaller tau costs over {self._bearable_share(row.workers):.0%} or loads the center over"
                f" {BEARABLE_LOAD:.0%}"
            )
        else:
            reasons.append(f"tau {least} is the most accurate")
        if (slowdown := self._slowdown(row.workers)) > 1.0:
            cores = self._config.host_cores
            reasons.append(f"{cores} cores make each worker {slowdown:.2g} times as slow as with enough of them")
        return "; ".join(reasons)

    def _reason_of_excess(self, row: Row) -> str:
        limit = self.saturation(row)
        if row.workers <= limit:
            return (
                f"nothing keeps exchanges below {self._bearable_share(row.workers):.0%} of the time and the center's"
                f" load below {BEARABLE_LOAD:.0%}: {row.exchange_share:.1%} and {row.server_load:.0%} at best; take"
                " larger minibatches, or hosts of more equal speed where workers wait for each other"
            )
        return (
            f"the center saturates at {_count(limit)} workers even so, limited by {self._bottleneck(row)}: more only"
            " queue; take fewer workers with more threads, larger minibatches, or a faster link or host"
        )

    def _bottleneck(self, row: Row) -> str:
        """Return the part of the center with the largest gain if it took no time."""
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
