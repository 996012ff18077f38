"""How a round of EASGD with momentum from the center grows, by the eigenvalues of its matrix."""

from __future__ import annotations

import numpy as np


def largest_growth(
    n_workers: int, rate: float, tau: int = 1, *, share: float, weight: float = 1.0,
    momentum: float = 0.9, alpha: float = 0.3,
) -> float:  # fmt: skip
    """Return the spectral radius of one round of EASGD, workers in turn, on a slope of curvature 1.

    The state: parameters, velocities and centers last seen of all workers, then the center.
    """
    size = 3 * n_workers + 1
    of_round, center = np.eye(size), size - 1
    for local in range(n_workers):
        velocity, last_center = local + n_workers, local + 2 * n_workers
        step, exchange = np.eye(size), np.eye(size)
        step[velocity, velocity], step[velocity, local] = momentum, rate
        step[local] -= step[velocity]
        difference = np.zeros(size)
        difference[local], difference[center] = alpha, -alpha
        exchange[local] -= difference
        exchange[center] -= -difference / weight
        per_period = share * (n_workers + weight) / (n_workers * tau)
        exchange[velocity] = per_period * (np.eye(size)[last_center] - exchange[center])
        exchange[velocity, velocity] += 1 - share
        exchange[last_center] = exchange[center]
        of_round = exchange @ np.linalg.matrix_power(step, tau) @ of_round
    return float(np.abs(np.linalg.eigvals(of_round)).max())
