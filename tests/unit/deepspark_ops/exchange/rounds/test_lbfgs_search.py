"""The search on functions whose minimum is known, and beside scipy's own L-BFGS."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import minimize

from deepspark_ops.errors import TrainingFailed
from deepspark_ops.exchange.rounds.lbfgs_search import (
    CURVATURE,
    SUFFICIENT_DECREASE,
    Evaluation,
    Vector64,
    _Slope,
    minimise,
    strong_wolfe,
)

Function = Callable[[Vector64], tuple[float, Vector64]]


def logistic(seed: int = 0) -> tuple[Function, Vector64]:
    """Regularised logistic regression, 60 samples of 8 numbers: convex, with one minimum."""
    rng = np.random.default_rng(seed)
    samples, signs = rng.standard_normal((60, 8)) * np.geomspace(1, 30, 8), rng.choice((-1.0, 1.0), 60)

    def evaluate(x: Vector64) -> tuple[float, Vector64]:
        margins = signs * (samples @ x)
        slopes = -signs / (1.0 + np.exp(margins))
        return float(np.logaddexp(0, -margins).mean() + 0.05 * x @ x), samples.T @ slopes / 60 + 0.1 * x

    return evaluate, np.zeros(8)


def rosenbrock() -> tuple[Function, Vector64]:
    def evaluate(x: Vector64) -> tuple[float, Vector64]:
        a, b = 1 - x[0], x[1] - x[0] ** 2
        return float(a * a + 100 * b * b), np.array([-2 * a - 400 * x[0] * b, 200 * b])

    return evaluate, np.array([-1.2, 1.0])


def search_minimum(function: Function, start: Vector64, n_evaluations: int) -> tuple[Vector64, list[float], int]:
    """Return (accepted point, loss at each accepted point, iterations)."""
    search = minimise(start.astype(np.float32).astype(np.float64), 10)
    request = next(search)
    accepted = [function(request.accepted)[0]]
    for _ in range(n_evaluations):
        assert np.array_equal(request.point, request.point.astype(np.float32)), "workers hold float32"
        iteration = request.iteration
        request = search.send(Evaluation(*function(request.point)))
        if request.iteration > iteration:
            accepted.append(function(request.accepted)[0])
    return request.accepted, accepted, request.iteration


@pytest.mark.parametrize("problem", [logistic, rosenbrock])
def test_minimum_is_scipys(problem: Callable[[], tuple[Function, Vector64]]) -> None:
    function, start = problem()
    expected = minimize(function, start, jac=True, method="L-BFGS-B", options={"maxcor": 10, "ftol": 1e-14})
    point, losses, _ = search_minimum(function, start, 2 * expected.nfev)
    np.testing.assert_allclose(point, expected.x, rtol=1e-3, atol=1e-4)  # points of float32
    assert losses[-1] == pytest.approx(expected.fun, rel=1e-6, abs=1e-8)


def test_every_accepted_point_is_lower_and_satisfies_the_wolfe_conditions() -> None:
    function, start = rosenbrock()
    search = minimise(start.astype(np.float32).astype(np.float64), 10)
    request, accepted = next(search), start.astype(np.float32).astype(np.float64)
    for _ in range(40):
        request = search.send(Evaluation(*function(request.point)))
        if not np.array_equal(request.accepted, accepted):
            loss, gradient = function(accepted)
            new_loss, new_gradient = function(request.accepted)
            moved = request.accepted - accepted
            assert new_loss <= loss + SUFFICIENT_DECREASE * gradient @ moved + 1e-6 * loss
            assert abs(new_gradient @ moved) <= CURVATURE * abs(gradient @ moved) * (1 + 1e-4)
            accepted = request.accepted


def test_a_loss_that_is_no_number_shortens_the_step() -> None:
    def wall(x: Vector64) -> tuple[float, Vector64]:
        """-log(1 - x) - log(1 + x) + 0.5 x: no number beyond 1."""
        if abs(x[0]) >= 1:
            return float("nan"), np.array([float("nan")])
        return float(-np.log(1 - x[0]) - np.log(1 + x[0]) + 0.5 * x[0]), 1 / (1 - x) - 1 / (1 + x) + 0.5

    point, _, _ = search_minimum(wall, np.array([0.999]), 60)
    # 2 x / (1 - x^2) = -0.5
    np.testing.assert_allclose(point, [2 - 5**0.5], rtol=1e-3)


def test_a_search_at_the_minimum_takes_no_iteration() -> None:
    point, losses, iterations = search_minimum(lambda x: (float(x @ x), 2 * x), np.zeros(3), 10)
    assert not point.any()
    assert (len(losses), iterations) == (1, 0)


@pytest.mark.parametrize("overflow", [(-1.0, np.nan), (-1.0, -np.inf), (np.inf, 1.0), (-np.inf, 0.0)])
def test_a_step_whose_loss_or_slope_is_not_finite_is_too_long(overflow: tuple[float, float]) -> None:
    search = strong_wolfe(_Slope(0.0, 0.09, -0.6), 1.0)
    step, n_overflows = next(search), 0
    while True:
        n_overflows += step > 0.4
        try:
            step = search.send(overflow if step > 0.4 else ((step - 0.3) ** 2, 2 * (step - 0.3)))
        except StopIteration as end:
            is_taken = bool(end.value)
            break
    assert is_taken
    assert n_overflows > 0
    assert 0.0 < step <= 0.4


@pytest.mark.parametrize("evaluation", [Evaluation(np.nan, np.zeros(1)), Evaluation(1.0, np.array([-np.inf]))])
def test_a_start_without_a_finite_loss_and_gradient_is_an_error(evaluation: Evaluation) -> None:
    search = minimise(np.zeros(1), 10)
    next(search)
    with pytest.raises(TrainingFailed, match="loss and gradient must be finite where the search starts"):
        search.send(evaluation)
