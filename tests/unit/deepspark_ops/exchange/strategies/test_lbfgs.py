from __future__ import annotations

import numpy as np
import pytest

from deepspark_ops.errors import ConfigError, TrainingFailed
from deepspark_ops.exchange.rounds.round_closing import RoundContents, RoundNote
from deepspark_ops.exchange.strategies.base import configure, find_strategy
from deepspark_ops.param_vector import Vector
from tests.reference.slow_training import SlowSolver
from tests.unit.deepspark_ops.exchange.strategies.test_sync import center_solver

N_PARAMS = 4
TARGETS = {0: np.float32([1.0, 2.0, 3.0, 4.0]), 1: np.float32([3.0, 2.0, 1.0, 0.0])}
SCALES = np.float32([1.0, 3.0, 10.0, 30.0])


class Rounds:
    """The center of a run whose workers' losses are sums of SCALES (x - target)^2 / 2."""

    def __init__(self, weight_decay: float = 0.0) -> None:
        solver = center_solver(SlowSolver(weight_decay=weight_decay), N_PARAMS)
        self.center = np.zeros(N_PARAMS, np.float32)
        self.extras = (np.zeros(N_PARAMS, np.float32), np.zeros(N_PARAMS, np.float32))
        self._closer = configure("lbfgs", {"memory": 5}).closer(solver)

    def play(self, points: dict[int, Vector], first: tuple[int, ...] = ()) -> list[str]:
        """Every worker measures where it is; returns the server's notes."""
        notes = {}
        for worker, point in points.items():
            off = point - TARGETS[worker]
            self.extras[0][:] += SCALES * off
            notes[worker] = RoundNote(float(SCALES @ off**2) / 2, 0.0, 1, is_first=worker in first)
        counts = np.full(1, len(points), np.uint64)
        return self._closer.close(RoundContents(self.center, self.extras, counts, [slice(0, N_PARAMS)], notes))

    def overflow(self, worker: int, first: bool = False) -> list[str]:
        """A worker's net overflows where it measures."""
        self.extras[0][:] = np.nan
        notes = {worker: RoundNote(float("nan"), 0.0, 1, is_first=first)}
        return self._closer.close(
            RoundContents(self.center, self.extras, np.ones(1, np.uint64), [slice(0, N_PARAMS)], notes)
        )

    @property
    def point(self) -> Vector:
        return self.extras[1].copy()


def test_it_ends_at_the_minimum_of_what_all_workers_measure() -> None:
    rounds = Rounds()
    rounds.play({0: rounds.center, 1: rounds.center}, first=(0, 1))
    for _ in range(40):
        rounds.play({0: rounds.point, 1: rounds.point})
    np.testing.assert_allclose(rounds.center, (TARGETS[0] + TARGETS[1]) / 2, rtol=1e-4)
    assert not rounds.extras[0].any()


def test_weight_decay_is_part_of_it() -> None:
    rounds = Rounds(weight_decay=0.5)
    rounds.play({0: rounds.center}, first=(0,))
    for _ in range(40):
        rounds.play({0: rounds.point})
    np.testing.assert_allclose(rounds.center, SCALES * TARGETS[0] / (SCALES + 0.5), rtol=1e-4)


def test_center_never_gets_worse() -> None:
    rounds = Rounds()
    rounds.play({0: rounds.center}, first=(0,))
    losses = []
    for _ in range(25):
        rounds.play({0: rounds.point})
        losses.append(float(SCALES @ (rounds.center - TARGETS[0]) ** 2))
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 1e-6 * losses[0]


@pytest.mark.parametrize(("members", "first"), [((0,), ()), ((0, 1), (1,))])
def test_joins_and_leaves_restart_the_search_at_the_center(members: tuple[int, ...], first: tuple[int, ...]) -> None:
    rounds = Rounds()
    rounds.play({0: rounds.center, 1: rounds.center}, first=(0, 1))
    for _ in range(3):
        rounds.play({0: rounds.point, 1: rounds.point})
    old_center = rounds.center.copy()
    # Worker 1 is lost, or its new process has measured at the center while worker 0 was elsewhere.
    (note,) = rounds.play({w: rounds.center if w in first else rounds.point for w in members}, first)
    assert note == f"lbfgs: measured by workers {list(members)} from now on; the search begins again"
    assert np.array_equal(rounds.center, old_center)
    assert np.array_equal(rounds.point, old_center)
    for _ in range(40):
        rounds.play({w: rounds.point for w in members})
    np.testing.assert_allclose(rounds.center, np.mean([TARGETS[w] for w in members], axis=0), rtol=1e-4)


def test_a_server_that_was_started_again_does_not_trust_the_first_round() -> None:
    rounds = Rounds()
    notes = rounds.play({0: np.float32([9.0, 9.0, 9.0, 9.0])})
    assert len(notes) == 1
    assert np.array_equal(rounds.point, rounds.center)


def test_one_worker_runs_it_too() -> None:
    strategy = find_strategy("lbfgs")
    assert strategy.for_workers(1) is strategy
    assert strategy.progress_per_step(3) == 1.0


@pytest.mark.parametrize("memory", [0, 101])
def test_memory_outside_its_range_is_refused(memory: int) -> None:
    with pytest.raises(ConfigError, match=rf"memory={memory}: must be in \[1, 100\]"):
        configure("lbfgs", {"memory": memory})


def test_a_trial_whose_loss_is_not_finite_is_stepped_back_from() -> None:
    """The net overflows from 2.5 on in the third parameter, whose minimum is 3: the search comes close to 2.5."""
    rounds = Rounds()
    rounds.play({0: rounds.center}, first=(0,))
    overflows = 0
    for _ in range(60):
        assert np.isfinite(rounds.point).all()
        if rounds.point[2] < 2.5:
            rounds.play({0: rounds.point})
        else:
            overflows += 1
            rounds.overflow(0)
    assert overflows > 0
    assert 2.4 < rounds.center[2] < 2.5
    assert find_strategy("lbfgs").repeats_data


def test_a_run_whose_first_loss_is_not_finite_says_so() -> None:
    with pytest.raises(TrainingFailed, match="lbfgs: loss nan"):
        Rounds().overflow(0, first=True)
