"""By how much the rate of inner products may be larger than that of other layers: measured, not given. No framework.

With many workers the rate is as large as the sharpest layers bear. In cifar10_quick those are the convolutions
(curvature 350 to 890, of the inner products 14 to 28), in CaffeNet's first steps it is the inner products (650): it
differs by net, and changes while a net trains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from caffe_import.net.param_layout import ParamEntry
from caffe_import.solver.update_rules import RULES
from deepspark_ops.param_vector import Vector
from deepspark_ops.train.setup.run import Run
from deepspark_ops.train.setup.strategy_plan import plan_strategy

FIRST_AT = 8
"""Updates before the first measurement."""
TIMES_LATER, MOST_APART = 4, 1_000
"""A measurement follows after four times as many updates as the one before, but at most so many later: with 450
updates three of them take 2 % of a worker's time, in long runs 0.3 %."""
FIRST_ROUNDS, ROUNDS = 3, 2
"""Of power iteration. Begun at the gradient, three are within a tenth of what ten find; later ones go on from there."""
SHARE = 0.5
"""Of the rate that momentum bears; single minibatches of 64 digits tell curvatures from 4 to 24 at one clock."""
DISTANCE = 0.01
"""Between the two gradients of a difference, in lengths of the parameters that are moved."""


class InnerProductRate:
    """Measures the largest curvature of the inner products alone, and bounds their rate by what momentum bears.

    On a slope of curvature c steps of SGD with momentum m grow without end where the rate is above 2 (1 + m) / c. The
    curvature is that of one minibatch, which is more than the mean's.

    Source: Polyak 1964, "Some methods of speeding up the convergence of iteration methods" (the bound, eigenvalues of
    the momentum step); LeCun, Simard, Pearlmutter 1992, "Automatic learning rate maximization by on-line estimation of
    the Hessian's eigenvectors" (power iteration by differences of gradients, on single minibatches).

    Used by one thread.

    The curvature is kept and the factor reckoned for the rate of each step, which warms up and falls between two
    measurements.

    Attributes:
        curvature: The steeper of the last two measurements; None before the first, NaN where it was not finite.
        n_gradients: Gradients that were computed for it.
    """

    def __init__(
        self,
        entries: Sequence[ParamEntry],
        *,
        momentum: float,
        most: float,
        borne: float = 1.0,
        state: Vector | None = None,
    ) -> None:
        """Measure nothing yet.

        Args:
            entries: The blobs.
            momentum: The solver's.
            most: The largest factor, at least 1.
            borne: Part of what momentum bears that the exchange leaves of it, in (0, 1].
            state: As ``state`` gave it in an earlier life of the run.
        """
        self.n_gradients = 0
        self._places = [slice(entry.offset, entry.stop) for entry in entries]
        self._momentum = momentum
        self._most = most
        self._borne = borne
        self._last_two: tuple[float, ...] = ()
        self._direction: Vector | None = None
        self._updates = 0
        self._next = FIRST_AT
        if state is not None:
            self._updates, self._next = (int(number) for number in state[:2])
            self._last_two = tuple(float(number) for number in state[2:])

    def state(self) -> Vector:
        """Return what a later life of the run goes on with; but for the direction, which it finds again."""
        return np.array([self._updates, self._next, *self._last_two], np.float32)

    @property
    def curvature(self) -> float | None:
        """The steeper of the last two measurements."""
        return float(np.maximum.reduce(self._last_two)) if self._last_two else None  # NaN if one is

    def is_due(self) -> bool:
        """Return whether to measure before the next step."""
        return self._updates >= self._next

    def count(self, n_updates: int) -> None:
        """Count updates of this process."""
        self._updates += n_updates

    def measure(self, step_of: Callable[[Vector], Vector], params: Vector) -> None:
        """Find the curvature anew.

        Args:
            step_of: Parameters -> what a step at rate 1 with no history subtracts there, of one and the same minibatch;
                both (n_params,), not written.
            params: Where to measure; not written.
        """
        self._last_two = (*self._last_two[-1:], self._measured(step_of, params))
        self._next = min(TIMES_LATER * self._next, self._next + MOST_APART)

    def factor_at(self, rate: float) -> float:
        """Return the factor on ``rate``, the other layers' of the next step; in [1, ``most``]."""
        curvature = self.curvature
        if curvature is None or not np.isfinite(curvature):
            return 1.0
        if rate <= 0 or curvature <= 0:
            return self._most
        borne = SHARE * self._borne * 2.0 * (1.0 + self._momentum) / (rate * curvature)
        return min(self._most, max(1.0, borne))

    def _measured(self, step_of: Callable[[Vector], Vector], params: Vector) -> float:
        """Return the largest eigenvalue, or what power iteration has come to; of the steps, so lr_mult is in it."""
        here = self._of_layers(step_of(params))
        direction = here if self._direction is None else self._direction
        n_rounds = FIRST_ROUNDS if self._direction is None else ROUNDS
        length = float(np.linalg.norm(self._of_layers(params))) or 1.0
        norm = float(np.linalg.norm(direction))
        self.n_gradients += 1
        for _ in range(n_rounds):
            if not 0.0 < norm < np.inf:
                break
            there = self._of_layers(step_of(self._moved(params, direction * np.float32(DISTANCE * length / norm))))
            with np.errstate(invalid="ignore"):
                direction = (there - here) / np.float32(DISTANCE * length)
            norm = float(np.linalg.norm(direction))
            self.n_gradients += 1
        self._direction = direction if 0.0 < norm < np.inf else None
        return norm

    def _of_layers(self, vector: Vector) -> Vector:
        return np.concatenate([vector[place] for place in self._places])

    def _moved(self, params: Vector, by: Vector) -> Vector:
        moved, start = params.copy(), 0
        for place in self._places:
            size = place.stop - place.start
            moved[place] += by[start : start + size]
            start += size
        return moved


def inner_products(run: Run) -> tuple[ParamEntry, ...]:
    """Return the blobs whose rate has a factor of its own in a run; none where the net's own rates are kept.

    They are beside convolutions that learn, where the strategy allows it and ``rate_scale`` is ``auto``, and where an
    update without history tells the gradient: with SGD and Nesterov, no clipping, in float32, on one device. In a net
    of inner products alone ``rate_scale`` is for them: 4 times as much lost 3 points of a perceptron with 32 workers.
    """
    plain = RULES[run.solver.type].rate_in_history and run.solver.clip_gradients < 0
    if run.config.rate_scale != "auto" or not plain or run.plan.precision != "float32" or run.plan.n_devices > 1:
        return ()
    if largest_factor(run) <= 1.0:
        return ()
    types = {layer.name: layer.type for layer in run.train_net.layers}
    learned = [entry for entry in run.train_net.params.entries if entry.lr_mult != 0]
    if not any("onvolution" in types[entry.layer] for entry in learned):
        return ()
    return tuple(entry for entry in learned if types[entry.layer] == "InnerProduct")


def largest_factor(run: Run) -> float:
    """Return what the strategy allows at most with the run's number of workers."""
    return plan_strategy(run.config).running.inner_product_rate_limit(run.config.n_workers)
