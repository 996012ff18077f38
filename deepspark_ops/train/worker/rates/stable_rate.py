"""The largest stable rate of elastic workers whose exchange overlaps their steps, by linear theory. Pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

Rates = npt.NDArray[np.float64]

MOST_WORKERS = 8
"""More workers with the same relative weight of the center have the same bound, within a tenth."""
LEAST_SHARE, N_RATES = 0.01, 128
"""The bound is the last of these rates, in equal ratios up to the rate of a worker alone, before the first that grows.
"""
TOLERANCE = 1e-6


@dataclass(frozen=True)
class OverlappedExchange:
    """The numbers of a run whose exchanges begin at the end of a period and end after the next period.

    Attributes:
        n_workers: p.
        comm_period: tau.
        momentum: The solver's.
        moving_rate: alpha, of a worker.
        center_share: Movement of the center by an elastic difference, as ``Strategy.center_share``.
        momentum_from_center: Share of a worker's momentum that an exchange replaces by the center's.
        progress_per_step: As ``Strategy.progress_per_step``.
    """

    n_workers: int
    comm_period: int
    momentum: float
    moving_rate: float
    center_share: float
    momentum_from_center: float
    progress_per_step: float


@cache
def overlap_stable_share(exchange: OverlappedExchange) -> float:
    """Return the largest stable rate as a share of the largest stable rate of a single worker, in [0, 1].

    The rate of a single worker is stable up to 2 (1 + momentum) / curvature. An exchange that overlaps the steps moves
    the worker by the elastic difference of the period before. Delayed by half a swing of the momentum, this movement
    drives the swing in place of damping the swing. A spring with a late answer is the textbook case of an unstable
    loop.

    Source: the eigenvalues of a turn, in which a worker makes a period of steps and exchanges, on a slope of curvature
    1; workers take turns. Eigenvalues as the test of stability: Zhang, Choromanska, LeCun 2015, "Deep learning with
    Elastic Averaging SGD", section 4 (round-robin, without delay); Giladi, Nacson, Hoffer, Soudry 2020, "At Stability's
    Edge: How to Adjust Hyperparameters to Preserve Minima Selection in Asynchronous Training of Neural Networks?",
    arXiv 1909.12340 (momentum with delay).
    """
    shares = np.geomspace(LEAST_SHARE, 1.0, N_RATES)
    growth = np.abs(np.linalg.eigvals(_turns(exchange, shares * 2.0 * (1.0 + exchange.momentum)))).max(axis=1)
    grows = np.flatnonzero(growth > 1.0 + TOLERANCE)
    n_stable = int(grows[0]) if grows.size else N_RATES
    return float(shares[n_stable - 1]) if n_stable else 0.0


def _turns(exchange: OverlappedExchange, rates: Rates) -> Rates:
    """Return the matrix of a turn for each rate, shape (n_rates, 4 n + 1, 4 n + 1).

    The state of n workers: parameters, velocities, centers of the last exchange, differences under way, each in the
    order of the next turns; last the center. After the turn the first worker is the last.
    """
    n = min(exchange.n_workers, MOST_WORKERS)
    local, velocity, last_center, under_way, center = 0, n, 2 * n, 3 * n, 4 * n
    unit = np.eye(4 * n + 1)
    step = np.tile(unit, (len(rates), 1, 1))
    step[:, velocity, velocity], step[:, velocity, local] = exchange.momentum, rates
    step[:, local] -= step[:, velocity]
    end = unit.copy()
    end[local] -= unit[under_way]
    end[under_way] = exchange.moving_rate * (end[local] - unit[center])
    end[center] += exchange.center_share * exchange.n_workers / n * end[under_way]
    share = exchange.momentum_from_center
    steps = exchange.n_workers * exchange.comm_period * exchange.progress_per_step  # of a worker, since its exchange
    end[velocity] = (1.0 - share) * unit[velocity] + share / steps * (unit[last_center] - end[center])
    end[last_center] = end[center]
    order = np.append(np.roll(np.arange(4 * n).reshape(4, n), -1, axis=1), center)
    turns: Rates = (end @ np.linalg.matrix_power(step, exchange.comm_period))[:, order]
    return turns
