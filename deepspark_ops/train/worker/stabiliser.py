"""Keeps the steps of many workers stable: their momentum, its fall with the rate, and the rates of blobs."""

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
from deepspark_ops.train.worker.inner_product_rate import InnerProductRate, inner_products
from deepspark_ops.train.worker.model import Model
from deepspark_ops.train.worker.rate_scale import borne_share


@dataclass(frozen=True)
class StabiliserPlan:
    """What the stabiliser of a run's workers goes by.

    Attributes:
        n_workers: p.
        blobs: The net's, in the layout's order.
        faster: Those whose rate may be larger than the others'.
        most: By how much at most.
        momentum: The solver's.
        borne: Part of what momentum bears that the exchange leaves of it, in (0, 1].
        momentum_from_center: Share of a worker's momentum that each exchange replaces by the center's; 0 for none.
        center_weight: What the center weighs by a worker, at least 1.
        state: What the worker's stabiliser knew in an earlier life of the run.
    """

    n_workers: int
    blobs: tuple[ParamEntry, ...] = ()
    faster: tuple[ParamEntry, ...] = ()
    most: float = 1.0
    momentum: float = 0.0
    borne: float = 1.0
    momentum_from_center: float = 0.0
    center_weight: float = 1.0
    state: Vector | None = None


class Stabiliser:
    """One worker's. Called before its steps and after its exchanges, by one thread.

    The rate of a blob is the solver's by the clock, times the run's factor, times the blob's own. Momentum falls with
    it, blob by blob.
    """

    def __init__(self, plan: StabiliserPlan, model: Model, rate_at: Callable[[int], float]) -> None:
        """Take the model that it steadies.

        Args:
            plan: What it goes by.
            model: Not run before.
            rate_at: Clock -> rate of a step, without the blobs' factors.
        """
        self._plan = plan
        self._model = model
        self._rate_at = rate_at
        self._velocity: CenterVelocity | None = None
        if plan.momentum_from_center:
            self._velocity = CenterVelocity(plan.n_workers, plan.center_weight)
        self._faster = np.isin([blob.offset for blob in plan.blobs], [blob.offset for blob in plan.faster])
        self._measured: InnerProductRate | None = None
        if plan.faster:
            self._measured = InnerProductRate(
                plan.faster, momentum=plan.momentum, most=plan.most, borne=plan.borne, state=plan.state
            )
        self._rates: Vector | None = None  # of the first step of the last run, by blob: a drop within it is seen later

    @property
    def needs_center(self) -> bool:
        """Whether exchanges are to report the center."""
        return self._velocity is not None

    def state(self) -> Vector | None:
        """Return what a snapshot keeps; None for nothing."""
        return None if self._measured is None else self._measured.state()

    def before_steps(self, step: int, n_steps: int, feeds: Mapping[str, Any]) -> str:
        """Set the blobs' factors and have momentum fall where a rate does; returns a line for the log, or nothing.

        Args:
            step: Clock of the first step that follows.
            n_steps: How many follow in one run.
            feeds: Of these steps.
        """
        rate = max(self._rate_at(step), self._rate_at(step + max(0, n_steps - 1)))
        before = self._rates
        if before is None:  # of what a snapshot holds, too
            earlier = self._rate_at(max(0, step - 1))
            before = earlier * self._factors(earlier)
        note = self._measure(step, n_steps, rate, feeds) if self._measured is not None else ""
        factors = self._factors(rate)
        if self._measured is not None:
            self._model.use_blob_factors(factors)
        self._rates = self._rate_at(step) * factors
        falls = falls_of_rates(before, self._rates)
        if (falls != 1.0).any():
            self._model.scale_momentum(falls)
            if self._velocity is not None:
                self._velocity.slow_down(falls)
        return note

    def after_exchange(self, center: Vector | None, clock: int, n_steps: int) -> None:
        """Take part of the momentum from the center.

        Args:
            center: As the exchange left it; None where it did not report the center.
            clock: Where the steps end that it exchanged.
            n_steps: This worker's steps since the exchange before.
        """
        if self._velocity is None or center is None:
            return
        velocity = self._velocity.observe(center, clock, n_steps)
        if velocity is not None:
            self._model.mix_momentum(velocity, self._plan.momentum_from_center)

    def _factors(self, rate: float) -> Vector:
        """Return the factor on the rate of each blob."""
        if self._measured is None:
            return np.ones(max(1, len(self._faster)), np.float32)
        return np.where(self._faster, self._measured.factor_at(rate), 1.0).astype(np.float32)

    def _measure(self, step: int, n_steps: int, rate: float, feeds: Mapping[str, Any]) -> str:
        measured, note = self._measured, ""
        assert measured is not None, "asked for where something is measured"
        if n_steps and rate > 0 and measured.is_due():
            before = measured.factor_at(rate)
            measured.measure(self._model.step_of(step, feeds), self._model.local())
            factor = measured.factor_at(rate)
            if abs(factor - before) >= 0.1 * before:
                note = (
                    f"inner products' rate times {factor:.3g}: their largest curvature is {measured.curvature:.3g}, the"
                    f" others' rate {rate:.3g}; measured_rates=false leaves it as the net has it"
                )
        measured.count(n_steps)
        return note


def stabiliser_plan(run: Run) -> StabiliserPlan | None:
    """Return what the workers of a run are steadied by; None where each is left alone."""
    plan, p = plan_strategy(run.config), run.config.n_workers
    running = plan.running
    share = running.momentum_from_center if has_velocity(run) else 0.0
    faster = inner_products(run)
    if not share and not faster:
        return None
    return StabiliserPlan(
        n_workers=p,
        blobs=run.train_net.params.entries,
        faster=faster,
        most=running.inner_product_rate_limit(p),
        momentum=run.solver.momentum,
        borne=borne_share(plan.comm_period, overlap=run.config.overlap),
        momentum_from_center=share,
        center_weight=running.center_weight,
    )


def has_velocity(run: Run) -> bool:
    """Return whether the solver's history is what a step subtracts, and lives longer than one."""
    return RULES[run.solver.type].rate_in_history and run.solver.momentum > 0
