"""The rates and the momentum of one worker on slopes of known curvature, while the rate warms up and drops."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from caffe_import.net.param_layout import ParamEntry
from deepspark_ops.param_vector import Vector
from deepspark_ops.train.worker.center_velocity import Velocity
from deepspark_ops.train.worker.measured_rates import RateGroup
from deepspark_ops.train.worker.stabiliser import Stabiliser, StabiliserPlan

MOMENTUM = 0.9
OTHERS, FASTER = ParamEntry("conv", 0, 0, (3,)), ParamEntry("ip", 0, 3, (4,))
GROUPS = (RateGroup("other layers", (OTHERS,)), RateGroup("inner products", (FASTER,), 8.0))
PLAN = StabiliserPlan(n_workers=8, blobs=(OTHERS, FASTER), groups=GROUPS, momentum=MOMENTUM, momentum_from_center=0.5)
SOLVER_RATE = 0.004


class Slope:
    """A model whose loss is half the curvature times the square of each parameter, under SGD with momentum."""

    def __init__(self, curvatures: Vector) -> None:
        self.curvatures = curvatures
        self.place = np.ones(len(curvatures), np.float32)
        self.history = np.zeros(len(curvatures), np.float32)
        self.factors = np.ones(2, np.float32)
        self.mixed: list[tuple[Velocity, float]] = []
        self.scaled: list[list[float]] = []

    def local(self) -> Vector:
        return self.place

    def step_of(self, step: int, feeds: object) -> Callable[[Vector], Vector]:
        return lambda params: (self.curvatures * params).astype(np.float32)

    def use_blob_factors(self, factors: Vector) -> None:
        self.factors = factors

    def scale_momentum(self, factors: Vector) -> None:
        self.scaled.append(factors.tolist())
        self.history *= self.by_param(factors)

    def mix_momentum(self, velocity: Velocity, share: float) -> None:
        self.mixed.append((velocity, share))

    def by_param(self, factors: Vector) -> Vector:
        return np.repeat(factors, (OTHERS.size, FASTER.size)).astype(np.float32)

    def make_step(self, rate: float) -> None:
        step = rate * self.by_param(self.factors) * self.curvatures * self.place
        self.history = np.float32(MOMENTUM) * self.history + step.astype(np.float32)
        self.place = self.place - self.history


def steadied(slope: Slope, rate_at: Callable[[int], float], **changes: object) -> Stabiliser:
    plan = StabiliserPlan(**{**vars(PLAN), **changes})  # type: ignore[arg-type]
    return Stabiliser(plan, slope, rate_at, lambda clock: SOLVER_RATE)  # type: ignore[arg-type]


def warm_up(clock: int) -> float:
    """A solver's rate of 0.004 that eight workers raise tenfold over 2,000 minibatches."""
    return SOLVER_RATE * (1.0 + 9.0 * min(1.0, clock / 2_000))


@pytest.mark.parametrize("curvature", [1.0, 20.0, 60.0, 90.0, 100.0, 400.0])
@pytest.mark.parametrize("steep", [FASTER, OTHERS])
def test_no_slope_grows_while_the_rate_rises(curvature: float, steep: ParamEntry) -> None:
    """Measured after 8, 32, 128 and 512 updates; the factor of the last measurement would be borne at its rate only.

    The solver's own rate bears 950, its tenfold only 95.
    """
    slope = Slope(np.float32([0.5, 0.2, 0.1, 1.0, 0.5, 0.3, 0.1]))
    slope.curvatures[steep.offset : steep.stop] *= np.float32(curvature / slope.curvatures[steep.offset])
    rates = steadied(slope, warm_up)
    places, bound = [], 2 * (1 + MOMENTUM)
    for update in range(600):
        clock = 8 * update
        rates.before_steps(clock, 1, {})
        assert warm_up(clock) * slope.factors[int(steep is FASTER)] * curvature <= bound * 1.01
        slope.make_step(warm_up(clock))
        places.append(float(np.abs(slope.place).max()))
    assert max(places) < 10.0
    assert np.abs(slope.place[steep.offset : steep.stop]).max() < 1e-2, "it has come down, as one worker does"


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
    rates.before_steps(0, 32, {})
    rates.before_steps(32, 96, {})
    assert (slope.factors[1], slope.scaled) == (8.0, [])
    rates.after_exchange(np.zeros(7, np.float32), 128, 128)
    slope.curvatures = slope.curvatures * np.float32(95.0)
    assert "2 for inner products (largest curvature 95)" in rates.before_steps(128, 1, {})
    assert slope.scaled == [[1.0, pytest.approx(0.25, rel=0.01)]]
    rates.after_exchange(np.ones(7, np.float32), 136, 1)
    ((velocity, share),) = slope.mixed
    assert share == 0.5
    assert velocity.factors[1] / velocity.factors[0] == pytest.approx(0.25, rel=0.01)


def test_a_rate_that_drops_while_the_factor_rises_leaves_momentum_what_remains() -> None:
    """To a tenth, and what was half of what momentum bears is borne eight times: 0.8 of the rate before."""
    slope = Slope(np.full(7, 1.9 / 0.01, np.float32))
    rates = steadied(slope, lambda clock: 0.01 if clock < 100 else 0.001)
    rates.before_steps(0, 8, {})
    rates.before_steps(8, 92, {})
    assert slope.factors[1] == pytest.approx(1.0, rel=0.01)
    rates.before_steps(100, 1, {})
    assert slope.factors[1] == 8.0
    assert slope.scaled == [[pytest.approx(0.1), pytest.approx(0.8, rel=0.01)]]


def test_a_later_life_goes_on_with_curvature_and_rate() -> None:
    slope = Slope(np.full(7, 95.0, np.float32))
    first = steadied(slope, lambda clock: 0.01 if clock < 100 else 0.001)
    first.before_steps(0, 8, {})
    first.before_steps(8, 92, {})
    again = Slope(slope.curvatures)
    later = steadied(again, lambda clock: 0.01 if clock < 100 else 0.001, state=first.state())
    later.before_steps(100, 1, {})
    assert again.factors.tolist() == [1.0, 8.0]
    assert again.scaled == [[pytest.approx(0.1), pytest.approx(0.4, rel=0.01)]], "0.01 times 2 before, 0.001 times 8"


def test_without_groups_nothing_is_measured() -> None:
    slope = Slope(np.full(7, 1.0, np.float32))
    rates = steadied(slope, lambda clock: 0.01 if clock < 4 else 0.001, groups=())
    rates.before_steps(0, 4, {})
    assert rates.state() is None
    rates.before_steps(4, 4, {})
    assert slope.factors.tolist() == [1.0, 1.0]
    assert np.allclose(slope.scaled, 0.1)
