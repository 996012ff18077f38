"""The factor on the learning rate, for several workers with the progress of a single worker. Pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

WARMUP_FRACTION = 0.1
WARMUP_LIMIT = 500
"""Minibatches of the clock; a longer warm-up costs long runs progress and adds no stability."""
WARMUP_UPDATES = 50
"""Least updates of each worker in a warm-up, also in a shorter run: momentum 0.9 needs ten updates to build up, and the
first steps of a deep net are the most delicate steps. Tried with two workers in turn, tau 1, factor 3, on CaffeNet with
batches of 16 enlarged images of CIFAR-10: the largest loss of the first 40 to 60 minibatches was 50 after a warm-up of
2 minibatches, 32 after 20 (and rising again), 28 after 40, 26 after 100; 24 with the solver's own rate. With four
workers and factor 4 the largest loss was 35 after 100, 33 after 200; 29 with the solver's own rate. cifar10_quick and
LeNet train with a warm-up of 2 minibatches: the loss of cifar10_quick after 200 minibatches was 1.57 to 1.60 for every
warm-up."""

LONG_WARMUP_ABOVE = 4.0
UPDATES_PER_FACTOR = 25
LONG_WARMUP_FRACTION = 0.4
"""A factor above 4 rises slowly, by 1 in 25 updates of each worker: meanwhile training finds parameters of less
curvature (Gilmer et al. 2021, "A loss curvature perspective on training instabilities", arXiv 2110.04369).
cifar10_quick with eight workers of ``easgd`` and factor 8: 67 % after a warm-up of 500 of 5,000 minibatches, 71.9 to
72.5 after 2,000."""


@dataclass(frozen=True)
class RateScale:
    """The factor on base_lr as a function of the clock: linear from 1 to ``target`` over ``warmup`` minibatches.

    Attributes:
        target: The factor after the warm-up; 1 leaves the solver's rate alone.
        warmup: Minibatches of the clock, 0 for none.
        origin: Clock at which the run began (not 0 after a Caffe solverstate).
        reason: One line for the log.
        of_workers: The factor that 1, 2, ... present workers need; empty where their number is of no account.
    """

    target: float
    warmup: int
    origin: int
    reason: str
    of_workers: tuple[float, ...] = ()

    def at(self, clock: int) -> float:
        """Return the factor for the minibatch granted at ``clock``.

        Example:
            >>> scale = RateScale(target=3.0, warmup=100, origin=0, reason="")
            >>> [scale.at(clock) for clock in (0, 50, 100, 5000)]
            [1.0, 2.0, 3.0, 3.0]
        """
        if self.warmup <= 0:
            return self.target
        progress = min(1.0, max(0, clock - self.origin) / self.warmup)
        return 1.0 + (self.target - 1.0) * progress


class PresentRateScale:
    """A worker's factor on base_lr: the run's factor, at most the factor that the present workers need.

    A run's factor below 1 is the limit of a strategy for all workers; fewer present workers have a larger limit.

    A minibatch of one of fewer workers moves the whole by more, and needs a smaller factor. The bound falls at once. It
    rises over ``WARMUP_UPDATES`` updates of each worker, since workers join in the middle of a run. Used by a
    single thread.
    """

    def __init__(self, scale: RateScale) -> None:
        """Begin without a bound."""
        self._scale = scale
        self._bound: float | None = None
        self._clock = 0

    def see(self, clock: int, live_workers: int) -> None:
        """Take the number of present workers at a grant's ``clock``; 0: unknown."""
        factors = self._scale.of_workers
        if not factors or not live_workers:
            return
        needed = factors[min(live_workers, len(factors)) - 1]
        if self._bound is not None and needed > self._bound:
            steps = max(0, clock - self._clock)
            needed = min(needed, self._bound + self._scale.target * steps / (WARMUP_UPDATES * live_workers))
        self._bound, self._clock = needed, clock

    def at(self, clock: int) -> float:
        """Return the factor for the minibatch granted at ``clock``."""
        factor = self._scale.at(clock)
        if self._bound is None:
            return factor
        return self._bound if self._scale.target < 1.0 else min(factor, self._bound)


def plan_rate_scale(
    setting: Literal["auto", "none"] | float,
    *,
    progress_per_step: float,
    factor: float,
    n_workers: int,
    origin: int,
    max_iter: int,
) -> RateScale:
    """Return the run's rate scale.

    The clock fixes the work, not the progress: with p workers the mean of center and workers moves by
    ``progress_per_step`` of a step per minibatch. ``auto`` multiplies the rate by the strategy's factor, the inverse or
    less. A warm-up leads to the factor, since the first steps from a random start are stable at the solver's own rate
    only. Factors above ``LONG_WARMUP_ABOVE`` have the longer warm-up. A run shorter than the warm-up ends at a smaller
    factor. A factor below 1 acts from the first step.

    Args:
        setting: ``auto``, ``none`` or the factor itself, as in TrainConfig.
        progress_per_step: The strategy's value with this number of workers, in (0, 1].
        factor: Factor of ``auto``, above 0.
        n_workers: With a single worker ``auto`` is exactly 1: Caffe's own run.
        origin: Clock at which the run begins.
        max_iter: Clock at which the run ends.
    """
    if setting == "none" or (setting == "auto" and n_workers == 1):
        why = "one worker runs Caffe's own schedule" if setting == "auto" else "rate_scale=none"
        return RateScale(1.0, 0, origin, f"rate_scale 1: {why}")
    if setting != "auto":
        return RateScale(float(setting), 0, origin, f"rate_scale {setting:g}: as given")
    full_factor = 1.0 / progress_per_step
    if factor < 1.0:
        why = f"steps of one of {n_workers} workers that are larger overshoot what the others have done meanwhile"
        return RateScale(factor, 0, origin, f"rate_scale {factor:.3g}: {why}")
    if factor == 1.0:
        return RateScale(1.0, 0, origin, "rate_scale 1: the strategy takes the solver's rate as it is")
    n_steps = max(0, max_iter - origin)
    if factor > LONG_WARMUP_ABOVE:
        warmup = min(ceil(UPDATES_PER_FACTOR * factor * n_workers), ceil(LONG_WARMUP_FRACTION * n_steps))
    else:
        warmup = min(WARMUP_LIMIT, ceil(WARMUP_FRACTION * n_steps))
    warmup = max(WARMUP_UPDATES * n_workers, warmup)
    scale = RateScale(factor, warmup, origin, "")
    capped = f", at most {factor:g} of {full_factor:g} by the strategy's limit" if full_factor > factor else ""
    reason = (
        f"rate_scale {factor:g}: a minibatch of one of {n_workers} workers moves the whole by {progress_per_step:.3g}"
        f" of a step{capped}; linear warm-up from 1 over {warmup} minibatches"
    )
    if n_steps < warmup:
        reason += f", of which this run has {n_steps}: it ends at {scale.at(max_iter):.3g}"
    else:
        reason += f", at the cost of the progress of {warmup * (1.0 - 1.0 / factor) / 2.0:.0f}"
    return replace(scale, reason=reason)
