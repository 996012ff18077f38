"""Successive halving: least accuracies of the next trial, against cases worked by hand."""

from __future__ import annotations

import pytest

from deepspark_ops.trials.course import AccuracyPoint
from deepspark_ops.trials.halving import stop_below


def accuracies_of(*pairs: tuple[int, float]) -> list[AccuracyPoint]:
    return [AccuracyPoint(clock, 0.0, accuracy) for clock, accuracy in pairs]


@pytest.mark.parametrize(
    ("accuracies", "least"),
    [
        ([], ""),
        ([0.5], "0.5@100"),  # of two trials the better goes on
        ([0.5, 0.7], "0.7@100"),  # of three the best
        ([0.5, 0.7, 0.6, 0.2, 0.1], "0.6@100"),  # of six the two best
        ([0.0], ""),
        ([0.8055555820465088], "0.805555@100"),  # an equal accuracy goes on
    ],
)
def test_the_best_third_of_the_trials_so_far_goes_on(accuracies: list[float], least: str) -> None:
    assert stop_below([accuracies_of((100, accuracy)) for accuracy in accuracies], 900, 3) == least


def test_a_trial_counts_by_its_first_test_at_or_after_a_clock() -> None:
    earlier = [accuracies_of((90, 0.9), (120, 0.3), (200, 0.8)), accuracies_of((310, 0.6))]
    assert stop_below(earlier, 900, 3) == "0.6@100 0.6@300"
    assert stop_below(earlier, 80, 2) == "0.9@20 0.9@40"
