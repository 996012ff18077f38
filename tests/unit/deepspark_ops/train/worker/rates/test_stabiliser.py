"""The rates and the momentum of one worker: on slopes of known curvature, by hand, and by linear theory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from caffe_import.net.param_layout import ParamEntry
from deepspark_ops.param_vector import CHUNK_FLOATS, StatisticBlobs, Vector
from deepspark_ops.train.worker.rates.measured_rates import RateGroup
from deepspark_ops.train.worker.rates.stabiliser import Stabiliser, StabiliserPlan, falls_of_rates
from tests.reference.easgd_growth import largest_growth

MOMENTUM = 0.9
OTHER_BLOB, FASTER = ParamEntry("conv", 0, 0, (3,)), ParamEntry("ip", 0, 3, (4,))
GROUPS = (RateGroup("other layers", (OTHER_BLOB,)), RateGroup("inner products", (FASTER,), 8.0))
PLAN = StabiliserPlan(
    n_workers=8, blobs=(OTHER_BLOB, FASTER), groups=GROUPS, momentum=MOMENTUM, momentum_from_center=0.5
)
SOLVER_RATE = 0.004


class Slope:
    """A model whose loss is half the curvature times the square of each parameter, under SGD with momentum."""

    def __init__(self, curvatures: Vector) -> None:
        self.curvatures = curvatures
        self.point = np.ones(len(curvatures), np.float32)
        self.history = np.zeros(len(curvatures), np.float32)
        self.factors = np.ones(2, np.float32)

    def local(self) -> Vector:
        return self.point

    def step_of(self, step: int, feeds: object) -> Callable[[Vector], Vector]:
        return lambda params: (self.curvatures * params).astype(np.float32)

    def use_blob_factors(self, factors: Vector) -> None:
        self.factors = factors

    def momentum(self) -> list[Vector]:
        return [self.history[: OTHER_BLOB.size], self.history[OTHER_BLOB.size :]]

    def replace_momentum(self, momentum: list[Vector]) -> None:
        self.history = np.concatenate(momentum)

    def by_param(self, factors: Vector) -> Vector:
        return np.repeat(factors, (OTHER_BLOB.size, FASTER.size)).astype(np.float32)

    def make_step(self, rate: float) -> None:
        step = rate * self.by_param(self.factors) * self.curvatures * self.point
        self.history = np.float32(MOMENTUM) * self.history + step.astype(np.float32)
        self.point = self.point - self.history


def steadied(slope: Slope, rate_at: Callable[[int], float], **changes: object) -> Stabiliser:
    plan = StabiliserPlan(**{**vars(PLAN), **changes})  # type: ignore[arg-type]
    return Stabiliser(plan, slope, rate_at, lambda clock: SOLVER_RATE)  # type: ignore[arg-type]


def warm_up(clock: int) -> float:
    """A solver's rate of 0.004 that eight workers raise tenfold over 2,000 minibatches."""
    return SOLVER_RATE * (1.0 + 9.0 * min(1.0, clock / 2_000))


@pytest.mark.parametrize("curvature", [1.0, 20.0, 60.0, 90.0, 100.0, 400.0])
@pytest.mark.parametrize("steep", [FASTER, OTHER_BLOB])
def test_no_slope_grows_while_the_rate_rises(curvature: float, steep: ParamEntry) -> None:
    """Measured after 8, 32, 128 and 512 updates; the factor of the last measurement would be borne at its rate only.

    The solver's own rate bears 950, its tenfold only 95.
    """
    slope = Slope(np.float32([0.5, 0.2, 0.1, 1.0, 0.5, 0.3, 0.1]))
    slope.curvatures[steep.offset : steep.stop] *= np.float32(curvature / slope.curvatures[steep.offset])
    rates = steadied(slope, warm_up)
    distances, bound = [], 2 * (1 + MOMENTUM)
    for update in range(600):
        clock = 8 * update
        rates.before_steps(clock, 1, {})
        assert warm_up(clock) * slope.factors[int(steep is FASTER)] * curvature <= bound * 1.01
        slope.make_step(warm_up(clock))
        distances.append(float(np.abs(slope.point).max()))
    assert max(distances) < 10.0
    assert np.abs(slope.point[steep.offset : steep.stop]).max() < 1e-2, "it has come down, as one worker does"


@pytest.mark.parametrize("n_steps", [1, 5])
def test_the_factor_is_that_of_the_largest_rate_of_a_run(n_steps: int) -> None:
    slope = Slope(np.full(7, 40.0, np.float32))
    rates = steadied(slope, lambda clock: 0.01 * (1 + clock))
    rates.before_steps(0, 8, {})
    rates.before_steps(0, n_steps, {})
    assert slope.factors[1] == pytest.approx(max(1.0, 0.5 * 3.8 / (0.01 * n_steps * 40.0)), rel=0.01)
    assert slope.factors[0] == 1.0


def test_momentum_of_a_blob_falls_with_its_own_rate() -> None:
    """The others keep theirs: only the factor has fallen."""
    slope = Slope(np.full(7, 1.0, np.float32))
    rates = steadied(slope, lambda clock: 0.01)
    slope.history += 1.0
    rates.before_steps(0, 32, {})
    rates.before_steps(32, 96, {})
    assert (slope.factors[1], slope.history.tolist()) == (8.0, [1.0] * 7)
    rates.after_exchange(np.zeros(7, np.float32), 128, 128)
    slope.curvatures = slope.curvatures * np.float32(95.0)
    assert "2 for inner products (largest curvature 95)" in rates.before_steps(128, 1, {})
    assert slope.history.tolist() == pytest.approx([1.0] * 3 + [0.25] * 4, rel=0.01)
    slope.history = np.zeros(7, np.float32)
    rates.after_exchange(np.ones(7, np.float32), 136, 1)
    # Eight workers, of whom all live: eight minibatches move the center by 8/9 of a step.
    assert slope.history.tolist() == pytest.approx([-0.5 * 9 / 8] * 3 + [-0.5 * 9 / 8 / 4] * 4, rel=0.01)


def test_a_rate_that_drops_while_the_factor_rises_leaves_momentum_what_remains() -> None:
    """To a tenth, and what was half of what momentum bears is borne eight times: 0.8 of the rate before."""
    slope = Slope(np.full(7, 1.9 / 0.01, np.float32))
    rates = steadied(slope, lambda clock: 0.01 if clock < 100 else 0.001)
    rates.before_steps(0, 8, {})
    rates.before_steps(8, 92, {})
    assert slope.factors[1] == pytest.approx(1.0, rel=0.01)
    slope.history += 1.0
    rates.before_steps(100, 1, {})
    assert slope.factors[1] == 8.0
    assert slope.history.tolist() == pytest.approx([0.1] * 3 + [0.8] * 4, rel=0.01)


def test_a_later_life_goes_on_with_curvature_and_rate() -> None:
    slope = Slope(np.full(7, 95.0, np.float32))
    first = steadied(slope, lambda clock: 0.01 if clock < 100 else 0.001)
    first.before_steps(0, 8, {})
    first.before_steps(8, 92, {})
    resumed = Slope(slope.curvatures)
    later = steadied(resumed, lambda clock: 0.01 if clock < 100 else 0.001, state=first.state())
    resumed.history += 1.0
    later.before_steps(100, 1, {})
    assert resumed.factors.tolist() == [1.0, 8.0]
    assert resumed.history[::6].tolist() == pytest.approx([0.1, 0.4], rel=0.01), "0.01 times 2 before, 0.001 times 8"


def test_without_groups_nothing_is_measured() -> None:
    slope = Slope(np.full(7, 1.0, np.float32))
    rates = steadied(slope, lambda clock: 0.01 if clock < 4 else 0.001, groups=())
    rates.before_steps(0, 4, {})
    assert rates.state() is None
    slope.history += 1.0
    rates.before_steps(4, 4, {})
    assert slope.factors.tolist() == [1.0, 1.0]
    assert np.allclose(slope.history, 0.1)


def test_the_plan_of_a_single_worker_leaves_the_model_alone() -> None:
    rates = Stabiliser(StabiliserPlan(), object(), lambda clock: 1.0 / (1 + clock), lambda clock: 1.0)  # type: ignore[arg-type]
    assert [rates.before_steps(clock, 1, {}) for clock in range(20)] == [""] * 20
    rates.after_exchange(np.zeros(7, np.float32), 20, 20)
    assert (rates.needs_center, rates.state()) == (False, None)


class Momentum:
    """A model with momentum alone, blob by blob."""

    def __init__(self, *blobs: Vector) -> None:
        self.blobs = list(blobs)
        self.replaced: list[Vector] = []

    def momentum(self) -> list[Vector]:
        return self.blobs

    def replace_momentum(self, momentum: list[Vector]) -> None:
        self.replaced.append(np.concatenate(momentum))
        self.addresses = [blob.ctypes.data for blob in momentum]


class Velocities:
    """The center's velocity by exchanges, as the whole momentum of a worker with one blob."""

    def __init__(self, n_workers: int, weight: float = 1.0, *, size: int = 1, rate_at: Callable[[int], float]) -> None:
        self.model = Momentum(np.zeros(size, np.float32))
        plan = StabiliserPlan(n_workers=n_workers, momentum_from_center=1.0, weight_of_center=lambda p: weight)
        self.stabiliser = Stabiliser(plan, self.model, rate_at, rate_at)  # type: ignore[arg-type]

    def replaced_after(self, center: list[float], clock: int, n_steps: int) -> list[float] | None:
        n_replaced = len(self.model.replaced)
        self.stabiliser.after_exchange(np.float32(center), clock, n_steps)
        return self.model.replaced[-1].tolist() if len(self.model.replaced) > n_replaced else None


def steady(clock: int) -> float:
    return 0.1


def test_velocity_is_the_movement_in_steps_of_a_worker() -> None:
    velocities = Velocities(4, size=2, rate_at=steady)
    assert velocities.replaced_after([1.0, 2.0], 10, 1) is None
    # Four workers: in 5 minibatches the center moves by a step.
    assert velocities.replaced_after([0.5, 2.25], 15, 1) == [0.5, -0.25]
    assert velocities.replaced_after([0.0, 0.0], 15, 1) is None, "no minibatch since"
    # Two live: half of the clock is this worker's, and a minibatch moves the center by a third of a step.
    assert velocities.replaced_after([-2.0, 0.0], 27, 6) == [0.5, 0.0]


def test_a_heavy_center_moves_less_by_a_minibatch() -> None:
    velocities = Velocities(16, 4.0, rate_at=steady)
    velocities.replaced_after([1.0], 16, 1)
    # In a round of 16 it moves by 16/20 of a step.
    assert velocities.replaced_after([0.2], 32, 1) == pytest.approx([1.0])


def test_what_the_center_did_before_the_rate_fell_counts_for_less_once() -> None:
    velocities = Velocities(4, rate_at=lambda clock: (1.0, 0.5, 0.1, 0.1)[min(3, max(0, clock - 9))])
    velocities.replaced_after([1.0], 10, 1)
    for clock in (9, 10, 11):
        velocities.stabiliser.before_steps(clock, 1, {})
    assert velocities.replaced_after([0.0], 15, 1) == pytest.approx([0.1])
    assert velocities.replaced_after([-1.0], 20, 1) == [1.0]


@pytest.mark.parametrize(
    ("old_rate", "rate", "fall"),
    [
        (0.5, 0.05, 0.1),
        (0.5, 0.49, 0.98),
        (0.5, 0.496, 1.0),
        (0.5, 0.5, 1.0),
        (0.5, 5.0, 1.0),
        (0.5, 0.0, 0.0),
        (0, 0, 1),
    ],
)
def test_momentum_falls_with_a_rate_that_drops(old_rate: float, rate: float, fall: float) -> None:
    assert falls_of_rates(np.float32([old_rate, 1]), np.float32([rate, 1])).tolist() == pytest.approx([fall, 1])


def mixed(blobs: list[Vector], old_center: Vector, center: Vector, **plan: Any) -> Momentum:
    """Return the model of one of eight workers after two exchanges; the center moves by a step in between."""
    model = Momentum(*blobs)
    stabiliser = Stabiliser(StabiliserPlan(8, **plan), model, steady, steady)  # type: ignore[arg-type]
    stabiliser.after_exchange(old_center, 8, 1)
    stabiliser.after_exchange(center, 17, 1)  # nine minibatches: a step
    return model


@pytest.mark.parametrize("rows", [[], [[1, 2, 2, 3, 3, 0.5]]])
def test_momentum_is_mixed_by_blob_and_statistics_have_none(rows: list[list[float]]) -> None:
    blobs = [np.float32([1.0]), np.float32([2.0, 3.0]), np.float32([4.0])]
    old_center, center = np.float32([2.5, 5.5, 4.5, 1.0]), np.float32([1.0, 1.0, 0.0, 1.0])
    statistics = StatisticBlobs.from_json(rows)
    (momentum,) = mixed(blobs, old_center, center, momentum_from_center=0.25, statistics=statistics).replaced
    expected = [0.75 * 1 + 0.25 * 1.5, 0.75 * 2 + 0.25 * 4.5, 0.75 * 3 + 0.25 * 4.5, 0.75 * 4]
    assert momentum.tolist() == pytest.approx([expected[0], 0.0, 0.0, 0.0] if rows else expected)
    assert [blob.tolist() for blob in blobs] == [[1.0], [2.0, 3.0], [4.0]]


def test_a_blob_of_several_chunks_is_mixed_whole_in_memory_of_its_own() -> None:
    size = 2 * CHUNK_FLOATS + 7
    rng = np.random.default_rng(1)
    history, old_center, center = (rng.standard_normal(size + 3).astype(np.float32) for _ in range(3))
    expected, unchanged = 0.5 * history + 0.5 * (old_center - center), np.copy((history, old_center, center))
    model = mixed([history[:3], history[3:]], old_center, center, momentum_from_center=0.5)
    np.testing.assert_allclose(model.replaced[0], expected, rtol=1e-5, atol=1e-6)
    assert np.array_equal((history, old_center, center), unchanged)
    assert [address % 64 for address in model.addresses] == [0, 0], "TensorFlow copies other memory"


def largest_rate(n_workers: int, share: float, **exchange: float) -> float:
    rates = np.arange(0.5, 4.5, 0.05)
    return float(next(rate for rate in rates if largest_growth(n_workers, rate, share=share, **exchange) >= 1.0))


@pytest.mark.parametrize(("n_workers", "gain"), [(4, 1.3), (8, 1.7)])
def test_momentum_from_the_center_bears_what_one_worker_bears(n_workers: int, gain: float) -> None:
    own_largest, shared = largest_rate(n_workers, 0.0), largest_rate(n_workers, 0.5)
    assert shared / own_largest == pytest.approx(gain, abs=0.08)
    assert shared == pytest.approx(3.8, rel=0.06)  # one worker bears 2 (1 + momentum)


@pytest.mark.parametrize(("n_workers", "expected"), [(8, 3.3), (16, 2.35)])
def test_a_heavy_center_bears_it_too(n_workers: int, expected: float) -> None:
    assert largest_rate(n_workers, 0.0, weight=2.0) == pytest.approx(expected, abs=0.1)
    assert largest_rate(n_workers, 0.5, weight=2.0) == pytest.approx(3.7, abs=0.1)
