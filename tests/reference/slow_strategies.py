"""Other ways to meet, element by element, in a fixed order of exchanges; written from the papers, not from our code.

Every intermediate is rounded to float32, as the stored numbers are. A run is a list of (worker, update before its
exchange); all workers begin with the initial center.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import sqrt
from typing import Final

import numpy as np

from tests.reference.slow_easgd import slow_run
from tests.reference.slow_training import SlowSolver, one_step

Run = Sequence[tuple[int, Sequence[float]]]
Center = list[np.float32]
Result = tuple[list[list[np.float32]], Center]
F = np.float32


def _start(initial: Sequence[float], n_workers: int) -> Result:
    center = [F(x) for x in initial]
    return [list(center) for _ in range(n_workers)], center


def slow_downpour(initial: Sequence[float], run: Run, n_workers: int, scale: float) -> Result:
    """Dean et al. 2012: push the scaled movement, take the center."""
    locals_, center = _start(initial, n_workers)
    starts = [list(x) for x in locals_]
    for worker, update in run:
        for i, u in enumerate(update):
            moved = F(locals_[worker][i] + F(u))
            delta = F(F(moved - starts[worker][i]) * F(scale))
            center[i] = F(center[i] + delta)
            locals_[worker][i] = starts[worker][i] = center[i]
    return locals_, center


def slow_staleness(initial: Sequence[float], run: Run, n_workers: int, *, count_own: bool) -> Result:
    """Zhang et al. 2015: the movement divided by the number of others' pushes since the own last pull."""
    locals_, center = _start(initial, n_workers)
    starts = [list(x) for x in locals_]
    since_pull = [0] * n_workers
    for worker, update in run:
        staleness = since_pull[worker]
        scale = 1.0 / (1 + staleness if count_own else max(1, staleness))
        for i, u in enumerate(update):
            moved = F(locals_[worker][i] + F(u))
            center[i] = F(center[i] + F(F(moved - starts[worker][i]) * F(scale)))
            locals_[worker][i] = starts[worker][i] = center[i]
        since_pull[worker] = 0
        for other in range(n_workers):
            if other != worker:
                since_pull[other] += 1
    return locals_, center


def slow_deepspark(
    initial: Sequence[float],
    run: Run,
    n_workers: int,
    alpha: float,
    decay: tuple[float, int, int],
    server: tuple[float, float, int, int],
) -> Result:
    """Kim et al. 2016: alpha falls every ``step`` own exchanges, the server's factor every ``step`` of all.

    Args:
        initial: Center at the start.
        run: Exchanges.
        n_workers: p.
        alpha: Moving rate at the start.
        decay: (rate, step, limit) of alpha; a negative limit is none.
        server: (factor, rate, step, limit) of the server's factor.
    """
    locals_, center = _start(initial, n_workers)
    n_exchanges, alphas, limits = [0] * n_workers, [alpha] * n_workers, [decay[1 + 1]] * n_workers
    factor, factor_limit = server[0], server[3]
    for total, (worker, update) in enumerate(run):
        if n_exchanges[worker] and n_exchanges[worker] % decay[1] == 0 and limits[worker] != 0:
            alphas[worker] *= decay[0]
            limits[worker] -= 1
        if total and total % server[2] == 0 and factor_limit != 0:
            factor *= server[1]
            factor_limit -= 1
        n_exchanges[worker] += 1
        for i, u in enumerate(update):
            moved = F(locals_[worker][i] + F(u))
            pull = F(F(moved - center[i]) * F(alphas[worker]))
            locals_[worker][i] = F(moved - pull)
            center[i] = F(center[i] + (pull if factor == 1.0 else F(pull * F(factor))))
    return locals_, center


def slow_softsync(initial: Sequence[float], run: Run, n_workers: int, updates_per_apply: int) -> Result:
    """Zhang et al. 2015: several movements, applied by the push that completes the group, divided by the workers."""
    divisor = max(updates_per_apply, n_workers)
    locals_, center = _start(initial, n_workers)
    starts = [list(x) for x in locals_]
    total, held = [F(0.0)] * len(center), 0
    for worker, update in run:
        held += 1
        for i, u in enumerate(update):
            moved = F(locals_[worker][i] + F(u))
            total[i] = F(total[i] + F(moved - starts[worker][i]))
            if held == updates_per_apply:
                center[i] = F(center[i] + F(total[i] * F(1.0 / divisor)))
                total[i] = F(0.0)
            locals_[worker][i] = starts[worker][i] = center[i]
        held %= updates_per_apply
    return locals_, center


def slow_async_diloco(
    initial: Sequence[float], run: Run, n_workers: int, *, rate: float, momentum: float, delay: int
) -> Result:
    """Liu et al. 2024, delayed Nesterov update with c = 0: outer gradients are start - end, N is ``delay``."""
    locals_, center = _start(initial, n_workers)
    starts = [list(x) for x in locals_]
    gathered, m = [F(0.0)] * len(center), [F(0.0)] * len(center)
    share = F(1.0 / delay)
    for t, (worker, update) in enumerate(run):
        for i, u in enumerate(update):
            gradient = F(starts[worker][i] - F(locals_[worker][i] + F(u)))
            gathered[i] = F(gathered[i] + gradient)
            step = F(gradient * share)
            if (t + 1) % delay == 0:
                m[i] = F(F(F(momentum) * m[i]) + F(gathered[i] * share))
                step = F(F(F(momentum) * m[i]) + step)
                gathered[i] = F(0.0)
            center[i] = F(center[i] - F(F(rate) * step))
            locals_[worker][i] = starts[worker][i] = center[i]
    return locals_, center


def slow_averaging(
    initial: Sequence[float], rounds: Sequence[Sequence[Sequence[float]]], block_momentum: float
) -> list[float]:
    """Chen and Huo 2016, eq. 4 and 5 with rate 1, in float64: workers begin a round with the same parameters.

    Args:
        initial: Center at the start.
        rounds: For each round, what each worker adds to its parameters.
        block_momentum: Filter; 0 is plain averaging.
    """
    center, block = [float(x) for x in initial], [0.0] * len(initial)
    for updates in rounds:
        for i in range(len(center)):
            mean = sum(update[i] for update in updates) / len(updates)
            block[i] = block_momentum * block[i] + mean
            center[i] += block[i]
    return center


def slow_mean_gradient(pushes: Sequence[Sequence[float]], order: Sequence[int]) -> list[np.float32]:
    """Sum the pushes in their order, and divide by their number; in float32."""
    total = [F(0.0)] * len(pushes[0])
    for worker in order:
        total = [F(t + F(p)) for t, p in zip(total, pushes[worker], strict=True)]
    return [F(t * F(1.0 / len(pushes))) for t in total]


def slow_averaging_in_order(
    initial: Sequence[float],
    rounds: Sequence[Sequence[Sequence[float]]],
    orders: Sequence[Sequence[int]],
    block_momentum: float,
) -> list[np.float32]:
    """``slow_averaging`` in float32, with the order of the pushes of every round."""
    center = [F(x) for x in initial]
    block = [F(0.0)] * len(center)
    for updates, order in zip(rounds, orders, strict=True):
        moves = [[F(F(c + F(u)) - c) for c, u in zip(center, update, strict=True)] for update in updates]
        mean = slow_mean_gradient(moves, order)
        block = [F(F(b * F(block_momentum)) + m) for b, m in zip(block, mean, strict=True)]
        center = [F(c + b) for c, b in zip(center, block, strict=True)]
    return center


def slow_diloco_in_order(
    initial: Sequence[float],
    rounds: Sequence[Sequence[Sequence[float]]],
    orders: Sequence[Sequence[int]],
    *,
    rate: float,
    momentum: float,
) -> list[np.float32]:
    """Douillard et al. 2023, Algorithm 1: SGD with Nesterov momentum, as PyTorch has it, on start - mean of the ends.

    In float32, with the order of the pushes of every round.
    """
    center = [F(x) for x in initial]
    buffer = [F(0.0)] * len(center)
    for updates, order in zip(rounds, orders, strict=True):
        moves = [[F(F(c + F(u)) - c) for c, u in zip(center, update, strict=True)] for update in updates]
        gradient = [F(-m) for m in slow_mean_gradient(moves, order)]
        buffer = [F(F(F(momentum) * b) + g) for b, g in zip(buffer, gradient, strict=True)]
        ahead = [F(g + F(F(momentum) * b)) for b, g in zip(buffer, gradient, strict=True)]
        center = [F(c - F(F(rate) * a)) for c, a in zip(center, ahead, strict=True)]
    return center


def slow_sync_in_order(
    initial: Sequence[float],
    rounds: Sequence[Sequence[Sequence[float]]],
    orders: Sequence[Sequence[int]],
    *,
    rate: float,
    momentum: float,
) -> list[np.float32]:
    """SGD with momentum by the mean of given gradients, in float32, with the order of the pushes of every round."""
    center = [F(x) for x in initial]
    velocity = [F(0.0)] * len(center)
    for gradients, order in zip(rounds, orders, strict=True):
        mean = slow_mean_gradient(gradients, order)
        velocity = [F(F(momentum) * v + F(F(rate) * g)) for v, g in zip(velocity, mean, strict=True)]
        center = [F(c - v) for c, v in zip(center, velocity, strict=True)]
    return center


def slow_sync(
    initial: Sequence[float], targets: Sequence[Sequence[float]], n_steps: int, solver: SlowSolver
) -> list[float]:
    """A solver's updates by the mean gradient of the workers' losses |x - target|^2 / 2, in float64.

    Args:
        initial: Parameters at the start.
        targets: One per worker.
        n_steps: Steps.
        solver: Its options; a step's passes see equal data.
    """
    x, first, second = [float(v) for v in initial], [0.0] * len(initial), [0.0] * len(initial)
    for update in range(1, n_steps + 1):
        gradient = [sum(x[i] - target[i] for target in targets) / len(targets) for i in range(len(x))]
        summed_norm = solver.iter_size * sqrt(sum(g * g for g in gradient))
        scale = solver.clip_gradients / summed_norm if 0 <= solver.clip_gradients < summed_norm else 1.0
        for i in range(len(x)):
            g = gradient[i] * scale + solver.weight_decay * x[i]
            step, first[i], second[i] = one_step(solver, g, solver.base_lr, first[i], second[i], update)
            x[i] -= step
    return x


def slow_dcasgd(
    initial: Sequence[float],
    targets: Sequence[Sequence[float]],
    events: Sequence[tuple[str, int]],
    compensation: float,
    solver: tuple[float, float, float],
) -> tuple[list[list[float]], list[float]]:
    """Zheng et al. 2017, eq. 10, with SGD, momentum and weight decay at the worker, in float64.

    Worker w's loss is the sum of (x - targets[w])^4 / 4, whose curvature is not constant.

    Args:
        initial: Center at the start.
        targets: One per worker.
        events: ("gradient", w): worker w takes its gradient where it is. ("step", w): it steps from the center.
        compensation: lambda.
        solver: (rate, momentum, weight decay).
    """
    rate, momentum, decay = solver
    n = len(initial)
    center = [float(v) for v in initial]
    locals_ = [list(center) for _ in targets]
    velocities = [[0.0] * n for _ in targets]
    gradients: list[list[float]] = [[] for _ in targets]
    for event, w in events:
        if event == "gradient":
            gradients[w] = [(x - t) ** 3 for x, t in zip(locals_[w], targets[w], strict=True)]
            continue
        for i in range(n):
            g = gradients[w][i]
            g += compensation * g * g * (center[i] - locals_[w][i])
            velocities[w][i] = momentum * velocities[w][i] + rate * (g + decay * center[i])
            center[i] -= velocities[w][i]
        locals_[w] = list(center)
    return locals_, center


AtEachPush = Callable[[Sequence[float], Run, int, float], Result]
"""Takes the center at the start, the run, the number of workers and the moving rate; options are the defaults."""
InRounds = Callable[[Sequence[float], Sequence[Sequence[Sequence[float]]], Sequence[Sequence[int]], float], Center]
"""Takes the center at the start, each round's pushes by worker, the order of each round's pushes, and the solver's
rate; returns the center at the end. Options are the defaults, and the solver's momentum is 0.9."""

AT_EACH_PUSH: Final[Mapping[str, AtEachPush]] = {
    "easgd": slow_run,
    "eamsgd": slow_run,
    "deepspark": lambda initial, run, n_workers, alpha: slow_deepspark(
        initial, run, n_workers, alpha, (1.0, 1, -1), (1.0, 1.0, 1, -1)
    ),
    "downpour": lambda initial, run, n_workers, _: slow_downpour(initial, run, n_workers, 1.0 / n_workers),
    "staleness": lambda initial, run, n_workers, _: slow_staleness(initial, run, n_workers, count_own=True),
    "softsync": lambda initial, run, n_workers, _: slow_softsync(initial, run, n_workers, updates_per_apply=2),
    # The compensation is the worker's own.
    "dcasgd": lambda initial, run, n_workers, _: slow_downpour(initial, run, n_workers, 1.0),
    "async_diloco": lambda initial, run, n_workers, _: slow_async_diloco(
        initial, run, n_workers, rate=0.7, momentum=0.2, delay=n_workers
    ),
}
"""Strategies whose center moves at each push. Every strategy is here or in ``IN_ROUNDS``; tests compare all of both."""

IN_ROUNDS: Final[Mapping[str, InRounds]] = {
    "local_sgd": lambda initial, pushes, orders, _: slow_averaging_in_order(initial, pushes, orders, 0.0),
    "diloco": lambda initial, pushes, orders, _: slow_diloco_in_order(initial, pushes, orders, rate=0.7, momentum=0.3),
    "sync": lambda initial, pushes, orders, rate: slow_sync_in_order(initial, pushes, orders, rate=rate, momentum=0.9),
}
LINE_SEARCHES: Final = ("lbfgs",)
"""Their center takes a step only when a line search ends: ``test_lbfgs.py`` compares it, other tests a round's sum."""
