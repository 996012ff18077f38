"""The bound of overlapped exchanges: against a slow play of the workers on a slope, step by step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from deepspark_ops.train.worker.rates.stable_rate import OverlappedExchange, overlap_stable_share

MOMENTUM, ALPHA, SHARE = 0.9, 0.3, 0.5
N_TURNS = 4_000


def exchange_of(n_workers: int, tau: int, weight: float = 1.0, **changes: float) -> OverlappedExchange:
    share = changes.get("momentum_from_center", SHARE)
    exchange = OverlappedExchange(n_workers, tau, MOMENTUM, ALPHA, 1.0 / weight, share, 1.0 / (n_workers + weight))
    return replace(exchange, **changes)  # type: ignore[arg-type]


def distance_after(exchange: OverlappedExchange, part: float) -> float:
    """Return how far worker and center are from the lowest point after many turns, at a part of one worker's rate."""
    p, rate = exchange.n_workers, part * 2.0 * (1.0 + exchange.momentum)
    x, velocity = list(np.random.default_rng(0).normal(size=p)), [0.0] * p
    pulled, difference, center = [0.0] * p, [0.0] * p, 1.0
    weight = 1.0 / exchange.progress_per_step - p
    for turn in range(N_TURNS):
        k = turn % p
        for _ in range(exchange.comm_period):
            velocity[k] = exchange.momentum * velocity[k] + rate * x[k]
            x[k] -= velocity[k]
        x[k] -= difference[k]
        difference[k] = exchange.moving_rate * (x[k] - center)
        center += exchange.center_share * difference[k]
        if exchange.momentum_from_center:
            movement = (pulled[k] - center) * (p + weight) / (p * exchange.comm_period)
            velocity[k] += exchange.momentum_from_center * (movement - velocity[k])
        pulled[k] = center
        if abs(x[k]) > 1e6:
            break
    return max(map(abs, [*x, center]))


@pytest.mark.parametrize(
    "exchange",
    [
        exchange_of(4, 1),
        exchange_of(4, 2),
        exchange_of(4, 4),
        exchange_of(8, 1, weight=2.0),
        exchange_of(4, 6),
        exchange_of(2, 1, moving_rate=0.45, momentum_from_center=0.0),
        exchange_of(3, 2, momentum=0.5),
        exchange_of(4, 1, momentum=0.0, momentum_from_center=0.0),
    ],
    ids=str,
)
def test_steps_shrink_below_the_bound_and_grow_above(exchange: OverlappedExchange) -> None:
    bound = overlap_stable_share(exchange)
    assert 0.02 < bound < 1.0
    assert distance_after(exchange, 0.95 * bound) < 1e-3
    assert distance_after(exchange, 1.1 * bound) > 1e3


def test_steps_without_momentum_bear_a_late_exchange_after_two_steps() -> None:
    assert overlap_stable_share(exchange_of(4, 2, momentum=0.0)) == 1.0


def test_an_exchange_that_is_unstable_by_itself_leaves_nothing() -> None:
    assert overlap_stable_share(exchange_of(4, 1, moving_rate=1.0, momentum_from_center=0.0)) == 0.0


@pytest.mark.parametrize("tau", [1, 2, 4])
def test_eight_workers_stand_for_more(tau: int) -> None:
    """Sixteen of them, with a center of the same relative weight, bear the same within a tenth."""
    few, sixteen = exchange_of(8, tau, weight=1.0), exchange_of(16, tau, weight=2.0)
    assert overlap_stable_share(sixteen) == pytest.approx(overlap_stable_share(few), rel=1e-6)
    assert distance_after(sixteen, 0.9 * overlap_stable_share(sixteen)) < 1e-3
    assert distance_after(sixteen, 1.2 * overlap_stable_share(sixteen)) > 1e3
