"""Early stop of hopeless trials: asynchronous successive halving by the accuracy of tests at equal clocks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from deepspark_ops.trials.course import AccuracyPoint

_N_RUNGS = 2
_SCALE = 1e6


def stop_below(earlier: Sequence[Sequence[AccuracyPoint]], max_iter: int, reduction_factor: int) -> str:
    """Return the option ``stop_below`` of the next trial.

    Rungs are the clocks ``max_iter / eta**2`` and ``max_iter / eta``, with ``eta`` the reduction factor. At a rung a
    trial goes on if it is the best trial, or among the best ``1 / eta`` of the trials that have reached the rung.
    Source: Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning", algorithm 2; a stopped trial is not
    promoted later. A trial counts at a rung by its first test at or after the rung's clock.

    Args:
        earlier: Tests of each earlier trial, by clock.
        max_iter: Minibatches of the next trial.
        reduction_factor: eta, at least 2.

    Example:
        >>> tests = [AccuracyPoint(100, 1.0, 0.3), AccuracyPoint(300, 3.0, 0.6), AccuracyPoint(900, 9.0, 0.8)]
        >>> stop_below([tests, tests[:1]], max_iter=900, reduction_factor=3)
        '0.3@100 0.6@300'
    """
    entries = []
    for power in range(_N_RUNGS, 0, -1):
        clock = max(1, max_iter // reduction_factor**power)
        accuracies = sorted(
            (reached for tests in earlier if (reached := _accuracy_at(tests, clock)) is not None), reverse=True
        )
        n_going_on = max(1, (len(accuracies) + 1) // reduction_factor)
        if len(accuracies) >= n_going_on and _rounded_down(accuracies[n_going_on - 1]) > 0.0:
            entries.append((clock, accuracies[n_going_on - 1]))
    return " ".join(f"{_rounded_down(accuracy)}@{clock}" for clock, accuracy in entries)


def _rounded_down(accuracy: float) -> float:
    """Return an accuracy with few digits that an equal accuracy reaches."""
    return math.floor(accuracy * _SCALE) / _SCALE


def _accuracy_at(tests: Sequence[AccuracyPoint], clock: int) -> float | None:
    return next((test.accuracy for test in tests if test.clock >= clock), None)
