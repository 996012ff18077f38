"""Elastic averaging element by element, written from the paper (Zhang et al. 2015, Algorithm 1), not from our code."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np


def slow_elastic_exchange(
    local: Sequence[float], center: Sequence[float], alpha: float
) -> tuple[list[np.float32], list[np.float32]]:
    """Return (new local, new center); every intermediate is rounded to float32, as the stored numbers are."""
    new_local, new_center = [], []
    rate = np.float32(alpha)
    for x, c in zip(local, center, strict=True):
        difference = np.float32(np.float32(x) - np.float32(c))
        pull = np.float32(rate * difference)
        new_local.append(np.float32(np.float32(x) - pull))
        new_center.append(np.float32(np.float32(c) + pull))
    return new_local, new_center


def slow_run(
    initial: Sequence[float], steps: Sequence[tuple[int, Sequence[float]]], n_workers: int, alpha: float
) -> tuple[list[list[np.float32]], list[np.float32]]:
    """Play exchanges in a fixed order.

    Args:
        initial: Center at the start, and every worker's parameters.
        steps: (worker, what it adds to its parameters before it exchanges).
        n_workers: With 1 the center copies the worker.
        alpha: Moving rate.

    Returns:
        (every worker's parameters, center).
    """
    center = [np.float32(x) for x in initial]
    locals_ = [list(center) for _ in range(n_workers)]
    for worker, update in steps:
        moved = [np.float32(x + np.float32(u)) for x, u in zip(locals_[worker], update, strict=True)]
        if n_workers == 1:
            locals_[worker], center = moved, list(moved)
        else:
            locals_[worker], center = slow_elastic_exchange(moved, center, alpha)
    return locals_, center


def slow_tree(
    initial: Sequence[float],
    steps: Sequence[tuple[int, Sequence[float]]],
    hosts: Sequence[Sequence[int]],
    alphas: tuple[float, float],
    host_period: Callable[[int], int],
) -> tuple[list[list[np.float32]], list[list[np.float32]], list[np.float32]]:
    """Play a tree of centers in a fixed order: each edge exchanges by Algorithm 1 (Zhang et al. 2015, EASGD Tree).

    Args:
        initial: Every center and every worker at the start.
        steps: (worker, what it adds to its parameters before it exchanges with its host).
        hosts: The workers of each host.
        alphas: Of worker and host, and of host and root.
        host_period: tau of a host, in exchanges of each worker, by the number of exchanges with the root that the
            worker has carried out. The workers carry them out in turn.

    Returns:
        (every worker's parameters, every host's center, root).
    """
    host_of = {worker: number for number, workers in enumerate(hosts) for worker in workers}
    locals_ = [[np.float32(x) for x in initial] for _ in host_of]
    centers, root = [[np.float32(x) for x in initial] for _ in hosts], [np.float32(x) for x in initial]
    counts = [workers.index(worker) for number, workers in enumerate(hosts) for worker in workers]
    n_carried_out = [0 for _ in host_of]
    for worker, update in steps:
        number = host_of[worker]
        moved = [np.float32(x + np.float32(u)) for x, u in zip(locals_[worker], update, strict=True)]
        locals_[worker], centers[number] = slow_elastic_exchange(moved, centers[number], alphas[0])
        counts[worker] += 1
        if counts[worker] % (len(hosts[number]) * host_period(n_carried_out[worker])) == 0:
            n_carried_out[worker] += 1
            centers[number], root = slow_elastic_exchange(centers[number], root, alphas[1])
    return locals_, centers, root
