"""The choice by Optuna: inside the space, repeatable, and nearer to the best values than chance."""

from __future__ import annotations

import math

from deepspark_ops.config.compare import Range
from deepspark_ops.trials.optuna_search import Observation, suggested

SPACE = {"strategy": ("easgd", "sync"), "base_lr": Range(0.0001, 1.0), "stepsize": Range(10, 20)}


def test_a_choice_lies_in_the_space_and_is_repeatable() -> None:
    observations = [Observation({"strategy": "sync", "base_lr": 0.01, "stepsize": 12}, 0.5)]
    values = suggested(SPACE, observations, seed=3)
    assert values == suggested(SPACE, observations, seed=3)
    assert values["strategy"] in SPACE["strategy"]
    assert 0.0001 <= float(values["base_lr"]) <= 1.0
    assert isinstance(values["stepsize"], int)


def test_choices_approach_the_best_values() -> None:
    observations: list[Observation] = []
    for _ in range(40):
        values = suggested({"base_lr": Range(0.0001, 1.0)}, observations, seed=0)
        distance = abs(math.log10(float(values["base_lr"])) + 2)  # the best rate is 0.01
        observations.append(Observation(values, 1.0 - distance / 4))
    late = [abs(math.log10(float(each.values["base_lr"])) + 2) for each in observations[-10:]]
    assert sum(late) / len(late) < 0.5  # random draws of four decades have a mean of 1


def test_failed_and_stopped_trials_count_but_are_not_the_best() -> None:
    low = [Observation({"base_lr": 0.001 + at / 1e4}, 0.9) for at in range(10)]
    high = [Observation({"base_lr": 0.5 + at / 20}, None) for at in range(5)]
    stopped = [Observation({"base_lr": 0.2 + at / 50}, 0.95, stopped_at=10) for at in range(5)]
    values = [suggested({"base_lr": Range(0.0001, 1.0)}, [*low, *high, *stopped], seed) for seed in range(9)]
    assert sorted(float(each["base_lr"]) for each in values)[4] < 0.1  # the median; chance: half are above 0.01
