"""What the worker loop must know about the run: numbers that are settled before it begins."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from deepspark_ops.param_vector import StatisticBlobs
from deepspark_ops.train.worker.comm_period import CommPeriod
from deepspark_ops.train.worker.rate_scale import RateScale
from deepspark_ops.train.worker.stabiliser import StabiliserPlan


class WorkerClock(Protocol):
    """What a worker takes its times from."""

    def now(self) -> float:
        """Return seconds that never go back, from some moment on."""

    def sleep(self, seconds: float) -> None:
        """Let so many seconds pass."""


class HostClock:
    """The time of this host."""

    def now(self) -> float:
        """See ``WorkerClock``."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """See ``WorkerClock``."""
        time.sleep(seconds)


HOST_CLOCK = HostClock()


@dataclass(frozen=True)
class LoopPlan:
    """What the loop must know about the run.

    Attributes:
        worker: This worker's id.
        n_workers: Workers of the run.
        comm_period: As in TrainConfig.
        rate_scale: The run's factor on base_lr.
        images_per_step: Samples of one minibatch, batch_size times iter_size.
        origin: Clock at which the run began: 0, or the iteration of a Caffe solverstate.
        base_lr: For messages.
        solver_rate: The solver's rate by the clock, without the factor.
        display: Minibatches of the clock between loss lines, 0 for none.
        outputs: The run's folder for what nets put out.
        average_loss: Steps that the displayed loss is averaged over.
        n_test_nets: Number of test nets.
        test_interval: Minibatches of the clock between tests, 0 for none.
        test_initialization: Is there a test at clock 0?
        snapshot: Minibatches of the clock between snapshots, 0 for none.
        overlaps: Does the exchange of one grant run while the next one is computed?
        searches: Does the strategy step back from a loss that is not finite?
        waits_in_rounds: Do all workers have the same parameters after an exchange (the strategy's choice)?
        moving_rates: alpha by the clock, (clock, alpha) from 0 on; empty where it stays as the link has it.
        stabiliser: What keeps the steps of many workers stable; None where each is left alone.
        statistics: BatchNorm's blobs in the parameters.
        time: What all times of the loop are taken from.
    """

    worker: int
    n_workers: int
    comm_period: CommPeriod
    rate_scale: RateScale
    images_per_step: int
    origin: int
    base_lr: float
    solver_rate: Callable[[int], float]
    display: int
    outputs: Path
    average_loss: int
    n_test_nets: int
    test_interval: int
    test_initialization: bool
    snapshot: int = 0
    searches: bool = False
    waits_in_rounds: bool = False
    overlaps: bool = False
    moving_rates: Sequence[tuple[int, float]] = ()
    stabiliser: StabiliserPlan | None = None
    statistics: StatisticBlobs = field(default_factory=StatisticBlobs)
    time: WorkerClock = HOST_CLOCK

    def is_snapshot(self, clock: int) -> bool:
        """Return whether a snapshot follows the step before ``clock``: it holds what has been exchanged by then."""
        return self.snapshot > 0 and clock % self.snapshot == 0

    def tests_before(self, clock: int) -> int:
        """Return how many tests of this run come before ``clock``: the data position of a test."""
        if self.test_interval <= 0:
            return 0
        first = -(-self.origin // self.test_interval)
        if first == 0 and not self.test_initialization:
            first = 1
        return max(0, -(-clock // self.test_interval) - first)
