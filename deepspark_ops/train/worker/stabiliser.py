"""Stabilises the steps of many workers: momentum, the fall of momentum with the rate, and the rates of blobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from caffe_import.net.param_layout import ParamEntry
from caffe_import.solver.update_rules import RULES
from deepspark_ops.param_vector import Vector
from deepspark_ops.train.setup.run import Run
from deepspark_ops.train.setup.strategy_plan import plan_strategy
from deepspark_ops.train.worker.center_velocity import CenterVelocity, falls_of_rates
from deepspark_ops.train.worker.measured_rates import MeasuredRates, RateGroup, rate_groups
from deepspark_ops.train.worker.model import Model
from deepspark_ops.train.worker.rate_scale import borne_share


@dataclass(frozen=True)
class StabiliserPlan:
    """The values of a run for the stabiliser of each worker.

    Attributes:
        n_workers: p.
        blobs: The net's blobs in the layout's order.
        groups: Groups of blobs whose rate follows a measurement.
        momentum: The solver's.
        borne: Part of momentum's bound that the exchange leaves, in (0, 1].
        momentum_from_center: Share of a worker's momentum that each exchange replaces by the center's; 0 for none.
        weight_of_center: Maps the number of present workers to the weight of the center in workers.
        begins_trained: Whether the worker begins with trained parameters.
        state: State of the worker's stabiliser in an earlier life of the run.
    """

    n_workers: int
    blobs: tuple[ParamEntry, ...] = ()
    groups: tuple[RateGroup, ...] = ()
    momentum: float = 0.0
    borne: float = 1.0
    momentum_from_center: float = 0.0
    weight_of_center: Callable[[int], float] = lambda _: 1.0
    begins_trained: bool = False
    state: Vector | None = None


class Stabiliser:
    """Stabilises a worker. Called before steps and after exchanges, by a single thread.

    The rate of a blob is the solver's rate by the clock, times the run's factor, times the blob's factor. Momentum
    falls with the blob's rate.
    """

    def __init__(
        self,
        plan: StabiliserPlan,
        model: Model,
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
        self._velocity: CenterVelocity | None = None
        if plan.momentum_from_center:
            self._velocity = CenterVelocity(plan.n_workers)
        self._masks = [
            np.isin([blob.offset for blob in plan.blobs], [blob.offset for blob in group.entries])
            for group in plan.groups
        ]
        self._measured: MeasuredRates | None = None
        if plan.groups:
            self._measured = MeasuredRates(
                plan.groups,
                momentum=plan.momentum,
                borne=plan.borne,
                begins_trained=plan.begins_trained,
                state=plan.state,
            )
        self._rates: Vector | None = None  # of the last run's first step, by blob: a drop within a run counts later

    @property
    def needs_center(self) -> bool:
        """Whether exchanges are to report the center."""
        return self._velocity is not None

    def state(self) -> Vector | None:
        """Return the state for a snapshot; None without a state."""
        return None if self._measured is None else self._measured.state()

    def before_steps(self, step: int, n_steps: int, feeds: Mapping[str, Any]) -> str:
        """Set the blobs' factors and lower momentum with a falling rate; return a line for the log, or "".

        Args:
            step: Clock of the next step.
            n_steps: Number of steps in the next run.
            feeds: Of these steps.
        """
        last = step + max(0, n_steps - 1)
        old_rates = self._rates
        if old_rates is None:  # a snapshot may hold curvatures
            earlier = max(0, step - 1)
            old_rates = self._rate_at(earlier) * self._factors(earlier, earlier)
        note = self._measure(step, last, n_steps, feeds) if self._measured is not None else ""
        factors = self._factors(step, last)
        if self._measured is not None:
            self._model.use_blob_factors(factors)
        self._rates = self._rate_at(step) * factors
        falls = falls_of_rates(old_rates, self._rates)
        if (falls != 1.0).any():
            self._model.scale_momentum(falls)
            if self._velocity is not None:
                self._velocity.slow_down(falls)
        return note

    def after_exchange(self, center: Vector | None, clock: int, n_steps: int, live_workers: int = 0) -> None:
        """Take part of the momentum from the center.

        Args:
            center: The center after the exchange; None if the exchange did not report the center.
            clock: End of the exchanged steps.
            n_steps: This worker's steps since the exchange before.
            live_workers: Present workers; 0 for all workers of the run.
        """
        if self._velocity is None or center is None:
            return
        weight = self._plan.weight_of_center(live_workers or self._plan.n_workers)
        velocity = self._velocity.observe(center, clock, n_steps, weight)
        if velocity is not None:
            self._model.mix_momentum(velocity, self._plan.momentum_from_center)

    def _factors(self, first: int, last: int) -> Vector:
        """Return the factor on the rate of each blob, for the steps from ``first`` to ``last``."""
        factors = np.ones(max(1, len(self._plan.blobs)), np.float32)
        if self._measured is not None:
            for mask, factor in zip(self._masks, self._group_factors(self._measured, first, last), strict=True):
                factors[mask] = factor
        return factors

    def _group_factors(self, measured: MeasuredRates, first: int, last: int) -> Vector:
        rate = max(self._rate_at(first), self._rate_at(last))
        return measured.factors_at(rate, max(self._solver_rate_at(first), self._solver_rate_at(last)))

    def _measure(self, step: int, last: int, n_steps: int, feeds: Mapping[str, Any]) -> str:
        measured, changes = self._measured, []
        assert measured is not None, "called where a group is measured"
        rate = max(self._rate_at(step), self._rate_at(last))
        if n_steps and rate > 0 and measured.is_due():
            old_factors = self._group_factors(measured, step, last)
            measured.measure(self._model.step_of(step, feeds), self._model.local())
            factors = self._group_factors(measured, step, last)
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


def stabiliser_plan(run: Run) -> StabiliserPlan | None:
    """Return the plan of the stabiliser of a run's workers; None without a stabiliser."""
    plan, p = plan_strategy(run.config), run.config.n_workers
    running = plan.running
    share = running.momentum_from_center if has_velocity(run) else 0.0
    groups = rate_groups(run)
    if not share and not groups:
        return None
    return StabiliserPlan(
        n_workers=p,
        blobs=run.train_net.params.entries,
        groups=groups,
        momentum=run.solver.momentum,
        borne=borne_share(plan.comm_period, overlap=run.config.overlap),
        momentum_from_center=share,
        weight_of_center=running.weight_of_center,
        begins_trained=bool(run.config.weights),
    )


def has_velocity(run: Run) -> bool:
    """Return whether the solver's history is the subtracted step and has momentum."""
    return RULES[run.solver.type].rate_in_history and run.solver.momentum > 0
