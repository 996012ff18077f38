"""Stabilises the steps of many workers: momentum, the fall of momentum with the rate, and the rates of blobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np

from caffe_import.net.param_layout import ParamEntry
from caffe_import.solver.update_rules import RULES
from deepspark_ops.exchange.center.buffers import BlobPool
from deepspark_ops.exchange.comm_period import CommPeriod
from deepspark_ops.exchange.strategies.base import ExchangeContext
from deepspark_ops.param_vector import CHUNK_FLOATS, StatisticBlobs, Vector, chunk_ranges
from deepspark_ops.train.setup.run import Run
from deepspark_ops.train.setup.strategy_plan import plan_strategy
from deepspark_ops.train.worker.rates.measured_rates import MeasuredRates, RateGroup, rate_groups
from deepspark_ops.train.worker.rates.stable_rate import OverlappedExchange, overlap_stable_share

LEAST_FALL = 0.01
"""A smaller fall of the rate between two steps of a worker does not change momentum: with momentum 0.9 the last ten
steps count, and their rates were nearly the same."""


class StabilisedModel(Protocol):
    """A model of SGD or Nesterov, whose history is the subtracted step; used by a single thread."""

    def local(self) -> Vector:
        """See ``Model``."""

    def momentum(self) -> Sequence[Vector]:
        """Return the history, flat and by blob of the layout; read-only views, valid until the next change."""

    def replace_momentum(self, momentum: Sequence[Vector]) -> None:
        """Take fresh vectors as the history, in the form of ``momentum``; the caller gives the vectors away."""

    def use_blob_factors(self, factors: Vector) -> None:
        """Multiply the rate of each blob of the layout by a factor from the next run on."""

    def step_of(self, step: int, feeds: Mapping[str, Any]) -> Callable[[Vector], Vector]:
        """Return the function of ``MeasuredRates.measure``, of the first minibatch of ``feeds``."""


@dataclass(frozen=True)
class StabiliserPlan:
    """The values of a run for the stabiliser of each worker. The default leaves workers alone.

    Attributes:
        n_workers: p.
        blobs: The net's blobs in the layout's order.
        groups: Groups of blobs whose rate follows a measurement.
        momentum: The solver's.
        stable_share: Returns the share of momentum's bound that is stable at the present tau, in [0, 1].
        momentum_from_center: Share of a worker's momentum that each exchange replaces by the center's; 0 for none.
        weight_of_center: Maps the number of present workers to the weight of the center in workers.
        look_ahead: Steps of momentum by which the parameters are ahead of the vector to exchange; 0 for none.
        begins_trained: Whether the worker begins with trained parameters.
        state: State of the worker's stabiliser in an earlier life of the run.
        statistics: BatchNorm's blobs, which have no momentum.
    """

    n_workers: int = 1
    blobs: tuple[ParamEntry, ...] = ()
    groups: tuple[RateGroup, ...] = ()
    momentum: float = 0.0
    stable_share: Callable[[], float] = lambda: 1.0
    momentum_from_center: float = 0.0
    weight_of_center: Callable[[int], float] = lambda _: 1.0
    look_ahead: float = 0.0
    begins_trained: bool = False
    state: Vector | None = None
    statistics: StatisticBlobs = field(default_factory=StatisticBlobs)


class Stabiliser:
    """Stabilises a worker. Called before steps and after exchanges, by a single thread.

    The rate of a blob is the solver's rate by the clock, times the run's factor, times the blob's factor. Momentum
    falls with the blob's rate.

    Workers that average parameters and not momentum swing about the center. Each worker follows its own minibatches,
    ten steps long with momentum 0.9, and is brought back. Momentum from the center damps these swings: the center's
    movement from an exchange to the next, as the subtracted step of a worker. With a share of one half the rate may be
    1.3 (p = 4) to 1.7 times (p = 8) as large: the limit of a single worker. The mean's progress stays the same.
    ``test_stabiliser.py`` has the eigenvalues, for a constant curvature, workers in turn, tau 1 and moving rate 0.3.
    """

    def __init__(
        self,
        plan: StabiliserPlan,
        model: StabilisedModel,
        rate_at: Callable[[int], float],
        solver_rate_at: Callable[[int], float],
    ) -> None:
        """Take the model to stabilise.

        Args:
            plan: The run's values.
            model: A model that has not run yet.
            rate_at: Maps a clock to the run's rate, without the factors of blobs.
            solver_rate_at: Maps a clock to the solver's rate.
        """
        self._plan = plan
        self._model = model
        self._rate_at = rate_at
        self._solver_rate_at = solver_rate_at
        groups = {entry.offset: number for number, group in enumerate(plan.groups) for entry in group.entries}
        self._group_of_blob = [groups.get(blob.offset, -1) for blob in plan.blobs] or [-1]
        self._measured = MeasuredRates(
            plan.groups,
            momentum=plan.momentum,
            begins_trained=plan.begins_trained,
            state=plan.state,
        )
        self._rates: Vector | None = None  # of the last run's first step, by blob: a drop within a run counts later
        self._center: Vector | None = None
        self._clock = 0
        self._falls = np.ones(1, np.float32)  # of the rates since the last exchange, by blob
        self._pool: BlobPool | None = None
        self._scratch = np.empty(CHUNK_FLOATS if self.needs_center else 0, np.float32)
        sums = plan.statistics.layers
        self._statistics = {offset for layer in sums for offset in (layer.mean[0], layer.var[0], layer.factor)}

    @property
    def needs_center(self) -> bool:
        """Whether exchanges are to report the center."""
        return self._plan.momentum_from_center > 0

    def state(self) -> Vector | None:
        """Return the state for a snapshot; None without a state."""
        return self._measured.state() if self._plan.groups else None

    def before_steps(self, step: int, n_steps: int, feeds: Mapping[str, Any]) -> str:
        """Set the blobs' factors and lower momentum with a falling rate; return a line for the log, or "".

        Args:
            step: Clock of the next step.
            n_steps: Number of steps in the next run.
            feeds: Minibatches of these steps.
        """
        if not (self.needs_center or self._plan.groups):
            return ""
        last = step + max(0, n_steps - 1)
        old_rates = self._rates
        if old_rates is None:  # a snapshot may hold curvatures
            earlier = max(0, step - 1)
            old_rates = self._rate_at(earlier) * self._factors(earlier, earlier)
        note = self._measure(step, last, n_steps, feeds)
        factors = self._factors(step, last)
        if self._plan.groups:
            self._model.use_blob_factors(factors)
        self._rates = self._rate_at(step) * factors
        falls = falls_of_rates(old_rates, self._rates)
        if (falls != 1.0).any():
            blobs = self._model.momentum()
            by_blob = zip(blobs, np.broadcast_to(falls, len(blobs)), strict=True)
            self._model.replace_momentum([blob * fall for blob, fall in by_blob])
            self._falls = self._falls * falls
        return note

    def vector_to_exchange(self, local: Vector) -> Vector:
        """Return the vector for the center, (n_params,), from the worker's ``local``; read only.

        With ``look_ahead`` m the parameters y = x + m v are the point of Nesterov's gradient, and the worker exchanges
        x. The history is -v.
        """
        return local + self._look_ahead() if self._plan.look_ahead else local

    def parameters_of(self, exchanged: Vector) -> Vector:
        """Return the parameters behind a vector from the center, which the caller gives away."""
        return np.subtract(exchanged, self._look_ahead(), out=exchanged) if self._plan.look_ahead else exchanged

    def _look_ahead(self) -> Vector:
        return np.concatenate([blob * np.float32(self._plan.look_ahead) for blob in self._model.momentum()])

    def after_exchange(self, center: Vector | None, clock: int, n_steps: int, live_workers: int = 0) -> None:
        """Replace a share of the momentum by the center's movement since the exchange before.

        With q workers and a center of weight m a minibatch moves the center by 1/(q + m) of a step. Some of the p
        workers may be gone: q is estimated by this worker's share of the clock. If q is overestimated, the movement
        grows at every exchange.

        Args:
            center: The center after the exchange, (n_params,); the caller gives the vector away. None if the exchange
                did not report the center.
            clock: End of the exchanged steps.
            n_steps: This worker's steps since the exchange before, at least 1.
            live_workers: Present workers; 0 for all workers of the run.
        """
        if not self.needs_center or center is None:
            return
        plan, last_center, elapsed, falls = self._plan, self._center, clock - self._clock, self._falls
        self._center, self._clock, self._falls = center, clock, np.ones(1, np.float32)
        if last_center is None or elapsed <= 0:
            return
        live = min(plan.n_workers, elapsed / n_steps)
        weight = plan.weight_of_center(live_workers or plan.n_workers)
        factors = (falls * (live + weight) / elapsed).astype(np.float32)
        share = np.float32(plan.momentum_from_center)
        self._mix(last_center, center, share * factors, np.float32(1.0 - plan.momentum_from_center))

    def _mix(self, last_center: Vector, center: Vector, factors: Vector, own_share: np.float32) -> None:
        """Set the momentum to ``own_share`` of it and ``factors * (last_center - center)``; 0 for statistics."""
        blobs, start = self._model.momentum(), 0
        self._pool = self._pool or BlobPool([blob.size for blob in blobs])
        momentum = self._pool.take()
        for history, mixed, factor in zip(blobs, momentum, np.broadcast_to(factors, len(blobs)), strict=True):
            for first, stop in chunk_ranges(history.size):
                chunk, movement = mixed[first:stop], self._scratch[: stop - first]
                span = slice(start + first, start + stop)
                np.subtract(last_center[span], center[span], out=movement)
                np.multiply(movement, factor, out=movement)
                np.multiply(history[first:stop], own_share, out=chunk)
                np.add(chunk, movement, out=chunk)
            if start in self._statistics:
                mixed.fill(0.0)
            start += history.size
        self._model.replace_momentum(momentum)

    def _factors(self, first: int, last: int) -> Vector:
        """Return the factor on the rate of each blob, for the steps from ``first`` to ``last``."""
        return np.append(self._group_factors(first, last), np.float32(1.0))[self._group_of_blob]

    def _group_factors(self, first: int, last: int) -> Vector:
        rate = max(self._rate_at(first), self._rate_at(last))
        solver_rate = max(self._solver_rate_at(first), self._solver_rate_at(last))
        return self._measured.factors_at(rate, solver_rate, self._plan.stable_share())

    def _measure(self, step: int, last: int, n_steps: int, feeds: Mapping[str, Any]) -> str:
        measured, changes = self._measured, []
        rate = max(self._rate_at(step), self._rate_at(last))
        if n_steps and rate > 0 and measured.is_due():
            old_factors = self._group_factors(step, last)
            measured.measure(self._model.step_of(step, feeds), self._model.local())
            factors = self._group_factors(step, last)
            values = zip(self._plan.groups, measured.curvatures, old_factors, factors, strict=True)
            changes = [
                f"{factor:.3g} for {group.name} (largest curvature {curvatures[-1]:.3g})"
                for group, curvatures, old, factor in values
                if abs(factor - old) >= 0.1 * old
            ]
        measured.count(n_steps)
        if not changes:
            return ""
        return f"rate {rate:.3g} times {', '.join(changes)}; measured_rates=false leaves the rate without these factors"


def falls_of_rates(old_rates: Vector, rates: Vector) -> Vector:
    """Return the factors on momentum after a change of the rates of a worker's steps, each in [0, 1].

    A solver's history holds steps of the old rate. After a drop these large steps go on, while the correcting force has
    become small: with eight workers of cifar10_quick accuracy first falls by two points. Scaling the history with the
    rate ends these steps. A growing rate does not change momentum.

    Source: Goyal et al. 2017, "Accurate, Large Minibatch SGD", arXiv 1706.02677, remark 2 (momentum correction).

    Args:
        old_rates: Rates of the step before, at least 0.
        rates: Rates of the next step.

    Example:
        >>> falls_of_rates(np.float32([1, 1, 1]), np.float32([0.25, 0.995, 2.0])).tolist()
        [0.25, 1.0, 1.0]
    """
    falls = np.ones_like(rates)
    return np.divide(rates, old_rates, out=falls, where=rates < (1.0 - LEAST_FALL) * old_rates)


def stabiliser_plan(run: Run, comm_period: CommPeriod) -> StabiliserPlan:
    """Return the plan of the stabiliser of a run's workers; ``comm_period`` is a worker's tau."""
    plan, p = plan_strategy(run.config), run.config.n_workers
    is_nesterov = run.solver.type == "Nesterov"
    has_velocity = RULES[run.solver.type].rate_in_history and run.solver.momentum > 0  # the history is the last step
    share = plan.running.momentum_from_center if has_velocity else 0.0
    exchange_of = partial(
        OverlappedExchange,
        n_workers=p,
        momentum=0.0 if run.solver.type == "AdaDelta" else run.solver.momentum,  # AdaDelta's is the decay of squares
        moving_rate=plan.moving_rate or plan.running.default_moving_rate(p),
        center_share=plan.running.center_share(ExchangeContext(p)),
        momentum_from_center=share,
        progress_per_step=plan.running.progress_per_step(p),
    )

    def stable_share() -> float:
        return overlap_stable_share(exchange_of(comm_period=comm_period.value)) if run.config.overlap else 1.0

    return StabiliserPlan(
        n_workers=p,
        blobs=run.train_net.params.entries,
        groups=rate_groups(run),
        momentum=run.solver.momentum,
        stable_share=stable_share,
        momentum_from_center=share,
        weight_of_center=plan.running.weight_of_center,
        look_ahead=run.solver.momentum if plan.running.exchanges_behind_look_ahead and is_nesterov else 0.0,
        begins_trained=bool(run.config.weights),
        statistics=run.statistics(),
    )
