"""The rates of groups of layers, by their measured curvature. No framework.

With many workers the sharpest layers limit the rate. In cifar10_quick the convolutions are the sharpest layers
(curvature 350 to 890; the inner products have 14 to 28). In CaffeNet's first steps the inner products are the sharpest
(650). The curvature differs by net, and changes while a net trains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from caffe_import.net.param_layout import ParamEntry
from caffe_import.solver.update_rules import RULES
from deepspark_ops.param_vector import Vector
from deepspark_ops.train.setup.run import Run
from deepspark_ops.train.setup.strategy_plan import plan_strategy

FIRST_AT = 8
"""Updates before the first measurement."""
TIMES_LATER, MOST_APART = 4, 1_000
"""A measurement follows after four times as many updates as the measurement before, but at most so many later: with 450
updates three measurements take 4 % of a worker's time, in long runs 0.6 %."""
FIRST_ROUNDS, ROUNDS = 3, 2
"""Rounds of power iteration. From the gradient, three rounds come within a tenth of the result of ten rounds. A later
measurement starts at the direction of the measurement before."""
SHARE = 0.5
"""Part of momentum's bound that a group with a raised rate takes: single minibatches of 64 digits give curvatures from
4 to 24 at the same clock."""
SAFE_SHARE = 0.9
"""Part of momentum's bound that no group exceeds: three rounds find a tenth less than the curvature."""
DISTANCE = 0.01
"""Distance of the two gradients of a difference, as a part of the length of the group's parameters."""
N_KEPT = 2
"""Measurements of a group that count for lowering a rate, by the flatter measurement."""
FORGETTING = 0.9
"""Part of the steepest measurement that remains at each further measurement. A rate is raised by the steepest one: a
minibatch that the net has learned is flat, and the next minibatch with a mistake is as steep as before. By the last two
alone LeNet diverged with four workers and tau 11."""
MOST_OF_PRODUCTS = 8.0
"""Largest factor on the rate of inner products beside convolutions; the measured factor is often lower."""
NOT_MEASURED = -1.0
"""Stands in a snapshot for a curvature that is not measured yet."""


@dataclass(frozen=True)
class RateGroup:
    """Blobs with one factor on the run's rate.

    Attributes:
        name: For the log.
        entries: The blobs.
        most: The largest factor, at least 1.
    """

    name: str
    entries: tuple[ParamEntry, ...]
    most: float = 1.0


class MeasuredRates:
    """Measures the largest curvature of each group of blobs, and bounds the group's rate by momentum's bound.

    On a slope of curvature c steps of SGD with momentum m grow without end if the rate is above 2 (1 + m) / c. The
    curvature of a minibatch is larger than the mean's curvature. So a rate is lowered only if both of the last two
    measurements ask for a lower rate, and raised only as far as the steepest measurement allows.

    Source: Polyak 1964, "Some methods of speeding up the convergence of iteration methods" (the bound, eigenvalues of
    the momentum step); LeCun, Simard, Pearlmutter 1992, "Automatic learning rate maximization by on-line estimation of
    the Hessian's eigenvectors" (power iteration by differences of gradients, on single minibatches).

    Used by one thread. The curvatures are kept. The factors follow the rate of each step, since the rate warms up and
    falls between two measurements.
    """

    def __init__(
        self,
        groups: Sequence[RateGroup],
        *,
        momentum: float,
        begins_trained: bool = False,
        state: Vector | None = None,
    ) -> None:
        """Measure nothing yet.

        Args:
            groups: Without a group, no measurement is due.
            momentum: The solver's.
            begins_trained: Whether the net is trained already: no later measurement is as steep as those of the first
                steps, so that no rate is raised.
            state: A result of ``state`` in an earlier life of the run. A state of other groups counts as none.
        """
        self._groups = tuple(groups)
        self._spans = [[slice(entry.offset, entry.stop) for entry in group.entries] for group in groups]
        self._momentum = momentum
        # A row of each group: the steepest measurement, and the last measurements, the oldest first.
        self._rows = np.full((len(groups), 1 + N_KEPT), NOT_MEASURED)
        self._rows[:, 0] = np.inf if begins_trained else 0.0
        self._directions: list[Vector | None] = [None for _ in groups]
        self._updates = 0
        self._next = FIRST_AT
        if state is not None and state.size == 2 + self._rows.size:
            self._updates, self._next = (int(number) for number in state[:2])
            self._rows[:] = state[2:].reshape(self._rows.shape)

    def state(self) -> Vector:
        """Return the state for a later life of the run. The later life finds the directions anew."""
        return np.array([self._updates, self._next, *self._rows.flat], np.float32)

    @property
    def curvatures(self) -> list[tuple[float, ...]]:
        """The last two measurements of each group, the older first."""
        return [tuple(value for value in row[1:] if value != NOT_MEASURED) for row in self._rows.tolist()]

    def is_due(self) -> bool:
        """Return whether to measure before the next step."""
        return bool(self._groups) and self._updates >= self._next

    def count(self, n_updates: int) -> None:
        """Count updates of this process."""
        self._updates += n_updates

    def measure(self, step_of: Callable[[Vector], Vector], params: Vector) -> None:
        """Measure the curvature of each group.

        Args:
            step_of: Maps parameters to the step at rate 1 without history, always of the same minibatch; both have
                shape (n_params,) and are not written.
            params: Parameters of the measurement; not written.
        """
        gradient = step_of(params)
        for number in range(len(self._groups)):
            curvature, row = self._measured(number, step_of, params, gradient), self._rows[number]
            row[1:] = *row[2:], curvature
            if np.isfinite(curvature):
                row[0] = max(FORGETTING * row[0], curvature)
        self._next = min(TIMES_LATER * self._next, self._next + MOST_APART)

    def factors_at(self, rate: float, solver_rate: float, stable_share: float = 1.0) -> Vector:
        """Return the factor of each group on the run's rate, shape (n_groups,).

        Args:
            rate: The run's rate at the next step.
            solver_rate: The solver's rate at this step. No group has a smaller rate.
            stable_share: Share of momentum's bound that is stable with the run's exchange, in [0, 1].
        """
        bound = stable_share * 2.0 * (1.0 + self._momentum)
        least = min(1.0, solver_rate / rate) if rate > 0 else 1.0
        factors = [
            _factor(group.most, values, rate * steepest, rate, bound, least)
            for group, values, steepest in zip(self._groups, self.curvatures, self._rows[:, 0].tolist(), strict=True)
        ]
        return np.array(factors, np.float32)

    def _measured(self, number: int, step_of: Callable[[Vector], Vector], params: Vector, gradient: Vector) -> float:
        """Return the largest eigenvalue, or the result of the last round; of the steps, so lr_mult is in the value."""
        spans, earlier = self._spans[number], self._directions[number]
        here = _joined(gradient, spans)
        direction = here if earlier is None else earlier
        length = float(np.linalg.norm(_joined(params, spans))) or 1.0
        norm = float(np.linalg.norm(direction))
        for _ in range(FIRST_ROUNDS if earlier is None else ROUNDS):
            if not 0.0 < norm < np.inf:
                break
            there = _joined(step_of(_moved(params, spans, direction * np.float32(DISTANCE * length / norm))), spans)
            with np.errstate(invalid="ignore"):
                direction = (there - here) / np.float32(DISTANCE * length)
            norm = float(np.linalg.norm(direction))
        self._directions[number] = direction if 0.0 < norm < np.inf else None
        return norm


def _factor(
    most: float, curvatures: tuple[float, ...], steepest: float, rate: float, bound: float, least: float
) -> float:
    """Return a group's factor; ``steepest`` and ``bound`` are products of rate and curvature."""
    if not curvatures or not np.isfinite(curvatures).all():
        return 1.0
    flatter = rate * min(curvatures)
    if steepest <= 0:
        return most
    if SHARE * bound > steepest:
        return min(most, SHARE * bound / steepest)
    return max(least, SAFE_SHARE * bound / flatter) if SAFE_SHARE * bound < flatter else 1.0


def _joined(vector: Vector, spans: Sequence[slice]) -> Vector:
    return np.concatenate([vector[span] for span in spans])


def _moved(params: Vector, spans: Sequence[slice], movement: Vector) -> Vector:
    moved, start = params.copy(), 0
    for span in spans:
        size = span.stop - span.start
        moved[span] += movement[start : start + size]
        start += size
    return moved


def rate_groups(run: Run) -> tuple[RateGroup, ...]:
    """Return the groups of blobs whose rate follows a measurement; none if the run keeps the net's rates.

    A measurement needs a strategy that allows it, ``rate_scale: auto``, and an update without history that shows the
    gradient: SGD or Nesterov, no clipping, float32, one device. The net must have convolutions that learn. A perceptron
    loses by the bounds: 9 points with 32 workers, whose 62 updates see two measurements of steep first parameters.
    """
    plain = RULES[run.solver.type].rate_in_history and run.solver.clip_gradients < 0
    if run.config.rate_scale != "auto" or not plain or run.plan.precision != "float32" or run.plan.n_devices > 1:
        return ()
    if not plan_strategy(run.config).running.measured_rates:
        return ()
    types = {layer.name: layer.type for layer in run.train_net.layers}
    learned = [entry for entry in run.train_net.params.entries if entry.lr_mult != 0]
    if not any("onvolution" in types[entry.layer] for entry in learned):
        return ()
    products = tuple(entry for entry in learned if types[entry.layer] == "InnerProduct")
    rest = tuple(entry for entry in learned if entry not in products)
    groups = (
        RateGroup("other layers" if products else "all layers", rest),
        RateGroup("inner products", products, MOST_OF_PRODUCTS),
    )
    return tuple(group for group in groups if group.entries)
