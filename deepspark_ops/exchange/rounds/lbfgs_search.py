"""Limited-memory BFGS as a generator: yields a point, receives loss and gradient at the point, yields the next point.

Nocedal and Wright, "Numerical Optimization" (2006): two-loop recursion, algorithm 7.4; L-BFGS, algorithm 7.5; strong
Wolfe line search, algorithms 3.5 and 3.6. All computations are in float64. Requested points are float32 numbers, as
workers hold float32: steps and curvature belong to measured points.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import TrainingFailed

Vector64 = npt.NDArray[np.float64]

SUFFICIENT_DECREASE, CURVATURE = 1e-4, 0.9
"""c1 and c2 of the Wolfe conditions, as recommended for quasi-Newton methods."""
LOSS_NOISE = 1e-6
"""Relative noise of a float32 loss: a smaller rise counts as no rise."""
MAX_EVALUATIONS = 20
_GROWTH = 2.0
_MARGIN = 0.1
"""Least distance of an interpolated step from the ends of its interval, as a share of the interval."""


class Evaluation(NamedTuple):
    """Loss and gradient, (n,), at the requested point."""

    loss: float
    gradient: Vector64


class Request(NamedTuple):
    """The next point to measure.

    Attributes:
        point: Where loss and gradient are wanted, (n,).
        accepted: The best point so far that a line search ended at, (n,).
        iteration: How many line searches have ended well.
    """

    point: Vector64
    accepted: Vector64
    iteration: int


class _Slope(NamedTuple):
    """A point of the line search: step, loss, and slope of the loss along the direction."""

    step: float
    loss: float
    slope: float


Search = Generator[float, tuple[float, float], bool]
"""Yields steps, receives (loss, slope) at each step; returns whether to take the last step."""


def minimise(start: Vector64, memory: int) -> Generator[Request, Evaluation, None]:
    """Minimise from ``start``, (n,), without end: at a minimum the same point is requested again and again.

    If loss or gradient of a trial is not finite, the step was too long and the search steps back.

    Args:
        start: Float32 numbers.
        memory: Pairs of steps and changes of the gradient that the curvature is remembered by.

    Raises:
        TrainingFailed: Loss or gradient is not finite at ``start``: there is nowhere to step back to.
    """
    x, iteration = start, 0
    pairs: deque[tuple[Vector64, Vector64]] = deque(maxlen=memory)
    loss, gradient = yield Request(x, x, iteration)
    if not (np.isfinite(loss) and np.isfinite(gradient).all()):
        msg = (
            f"lbfgs: loss {loss:g}, {np.count_nonzero(~np.isfinite(gradient)):,} of {len(gradient):,} gradients not"
            " finite: loss and gradient must be finite where the search starts; look at the weights it starts from and"
            " at the scale of the data"
        )
        raise TrainingFailed(msg)
    while True:
        direction = -_inverse_hessian_times(gradient, pairs)
        slope = float(direction @ gradient)
        if slope >= 0.0:
            pairs.clear()
            direction, slope = -gradient, -float(gradient @ gradient)
        if slope == 0.0:
            loss, gradient = yield Request(x, x, iteration)
            continue
        first = 1.0 if pairs else min(1.0, 1.0 / float(np.abs(gradient).sum()))
        search = strong_wolfe(_Slope(0.0, loss, slope), first)
        step = next(search)
        while True:
            with np.errstate(over="ignore"):  # a point beyond float32 has no finite loss
                point = (x + step * direction).astype(np.float32).astype(np.float64)
            evaluation = yield Request(point, x, iteration)
            with np.errstate(invalid="ignore", over="ignore"):
                slope = float(evaluation.gradient @ direction)
            try:
                step = search.send((evaluation.loss, slope))
            except StopIteration as end:
                is_taken = bool(end.value)
                break
        if not is_taken:
            # No step along the steepest descent is better: x is a minimum within float32.
            if not pairs:
                loss, gradient = yield Request(x, x, iteration)
            pairs.clear()
            continue
        moved, change = point - x, evaluation.gradient - gradient
        if float(moved @ change) > 1e-10 * float(change @ change):
            pairs.append((moved, change))
        x, loss, gradient, iteration = point, evaluation.loss, evaluation.gradient, iteration + 1


def _inverse_hessian_times(gradient: Vector64, pairs: Iterable[tuple[Vector64, Vector64]]) -> Vector64:
    """Return H g by the two-loop recursion, algorithm 7.4, with gamma of eq. 7.20."""
    result = gradient.copy()
    history = list(pairs)
    factors = []
    for moved, change in reversed(history):
        factor = float(moved @ result) / float(moved @ change)
        factors.append(factor)
        result -= factor * change
    if history:
        moved, change = history[-1]
        result *= float(moved @ change) / float(change @ change)
    for (moved, change), factor in zip(history, reversed(factors), strict=True):
        result += (factor - float(change @ result) / float(moved @ change)) * moved
    return result


def strong_wolfe(origin: _Slope, first: float) -> Search:
    """Find a step that satisfies the strong Wolfe conditions; algorithm 3.5.

    A step is also taken if its loss is no higher than noise allows and its slope is small enough: near a minimum,
    float32 losses show no decrease. After ``MAX_EVALUATIONS`` the best step with a decrease is taken.

    Args:
        origin: At step 0; the slope is negative.
        first: Step to begin with.
    """
    previous, step, best = origin, first, origin
    for count in range(1, MAX_EVALUATIONS + 1):
        trial = _measured(step, *(yield step))
        if _is_taken(origin, trial):
            return True
        best = _better(best, trial)
        if not _decreases(origin, trial) or (count > 1 and trial.loss >= previous.loss):
            return (yield from _zoom(origin, previous, trial, best, MAX_EVALUATIONS - count))
        if trial.slope >= 0.0:
            return (yield from _zoom(origin, trial, previous, best, MAX_EVALUATIONS - count))
        previous, step = trial, _GROWTH * step
    return (yield from _take_best(origin, best))


def _zoom(origin: _Slope, low: _Slope, high: _Slope, best: _Slope, n_left: int) -> Search:
    """Narrow the interval between ``low``, the better step, and ``high``; algorithm 3.6."""
    for _ in range(n_left):
        step = _between(low, high)
        trial = _measured(step, *(yield step))
        if _is_taken(origin, trial):
            return True
        best = _better(best, trial)
        if not _decreases(origin, trial) or trial.loss >= low.loss:
            high = trial
        else:
            if trial.slope * (high.step - low.step) >= 0.0:
                high = low
            low = trial
    return (yield from _take_best(origin, best))


def _take_best(origin: _Slope, best: _Slope) -> Search:
    """Return to the best step, if there is a step with a decrease."""
    if best.step == 0.0:
        return False
    loss, _ = yield best.step
    return loss < origin.loss


def _measured(step: float, loss: float, slope: float) -> _Slope:
    """Return the point; a point without finite loss and slope is higher than any other point."""
    is_finite = np.isfinite(loss) and np.isfinite(slope)
    return _Slope(step, loss, slope) if is_finite else _Slope(step, np.inf, np.nan)


def _better(best: _Slope, trial: _Slope) -> _Slope:
    return trial if trial.loss < best.loss else best


def _decreases(origin: _Slope, trial: _Slope) -> bool:
    """Eq. 3.7a; False for a loss that is not finite."""
    return trial.loss <= origin.loss + SUFFICIENT_DECREASE * trial.step * origin.slope


def _is_taken(origin: _Slope, trial: _Slope) -> bool:
    is_lower = _decreases(origin, trial) or trial.loss <= origin.loss + LOSS_NOISE * abs(origin.loss)
    return is_lower and abs(trial.slope) <= -CURVATURE * origin.slope


def _between(low: _Slope, high: _Slope) -> float:
    """Return the minimiser of the cubic through both points, eq. 3.59, at a distance from both; else the middle."""
    width = high.step - low.step
    middle = low.step + 0.5 * width
    if not np.isfinite((high.loss, high.slope)).all():
        return middle
    d1 = low.slope + high.slope - 3.0 * (low.loss - high.loss) / (low.step - high.step)
    square = d1 * d1 - low.slope * high.slope
    if square < 0.0:
        return middle
    d2 = np.copysign(square**0.5, width)
    bottom = high.slope - low.slope + 2.0 * d2
    if bottom == 0.0:
        return middle
    step = high.step - width * (high.slope + d2 - d1) / bottom
    ends = sorted((low.step + _MARGIN * width, high.step - _MARGIN * width))
    return float(min(max(step, ends[0]), ends[1]))
