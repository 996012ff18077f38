"""The worker loop's knowledge of the run: numbers fixed before the loop begins."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from deepspark_ops.exchange.comm_period import CommPeriod
from deepspark_ops.param_vector import StatisticBlobs
from deepspark_ops.train.worker.loop.center_watch import WatchPlan
from deepspark_ops.train.worker.loop.host_load import HostLoad
from deepspark_ops.train.worker.rates.rate_scale import RateScale
from deepspark_ops.train.worker.rates.stabiliser import StabiliserPlan


class WorkerClock(Protocol):
    """Source of a worker's times."""

    def now(self) -> float:
        """Return monotonic seconds."""

    def sleep(self, seconds: float) -> None:
        """Let these seconds pass."""

    def thread(self) -> Executor:
        """Return a new thread beside the worker's thread, in the same time."""


class HostClock:
    """The time of this host."""

    def now(self) -> float:
        """See ``WorkerClock``."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """See ``WorkerClock``."""
        time.sleep(seconds)

    def thread(self) -> Executor:
        """See ``WorkerClock``."""
        return ThreadPoolExecutor(1, "exchange")


HOST_CLOCK = HostClock()


@dataclass(frozen=True)
class LoopPlan:
    """The loop's knowledge of the run.

    Attributes:
        worker: This worker's id.
        n_workers: Workers of the run.
        comm_period: As in TrainConfig.
        rate_scale: The run's factor on base_lr.
        images_per_step: Samples of a minibatch, batch_size times iter_size.
        origin: Clock at which the run began: 0, or the iteration of a Caffe solverstate.
        base_lr: For messages.
        solver_rate: The solver's rate by the clock, without the factor.
        display: Minibatches of the clock between loss lines, 0 for none.
        outputs: The run's folder for outputs of nets.
        average_loss: Number of steps in the displayed mean loss.
        n_test_nets: Number of test nets.
        test_interval: Minibatches of the clock between tests, 0 for none.
        test_initialization: Whether a test runs at clock 0.
        snapshot: Minibatches of the clock between snapshots, 0 for none.
        overlaps: Whether the exchange of a grant runs during the next grant.
        asks_ahead: Whether the next grant is requested during the last steps of a grant.
        searches: Whether the strategy steps back from a loss that is not finite.
        most_new_starts: Times that a worker begins again at the center after a loss that is not finite.
        waits_in_rounds: Whether all workers have the same parameters after an exchange, by the strategy.
        moving_rates: alpha by the clock, (clock, alpha) from 0 on; empty for the link's constant alpha.
        stabiliser: Plan of the worker's stabiliser.
        statistics: BatchNorm's blobs in the parameters.
        watch: Watch of weights and distances; None without a watch.
        has_pulse: Whether the worker sends its loss each second between the loss lines.
        host_load: Reports the load of the host; None for no reports.
        time: Source of all times of the loop.
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
    most_new_starts: int = 0
    waits_in_rounds: bool = False
    overlaps: bool = False
    asks_ahead: bool = False
    moving_rates: Sequence[tuple[int, float]] = ()
    stabiliser: StabiliserPlan = field(default_factory=StabiliserPlan)
    statistics: StatisticBlobs = field(default_factory=StatisticBlobs)
    watch: WatchPlan | None = None
    has_pulse: bool = False
    host_load: HostLoad | None = None
    time: WorkerClock = HOST_CLOCK

    def is_snapshot(self, clock: int) -> bool:
        """Return whether a snapshot, with all steps exchanged so far, follows the step before ``clock``."""
        return self.snapshot > 0 and clock % self.snapshot == 0

    def tests_before(self, clock: int) -> int:
        """Return how many tests of this run come before ``clock``: the data position of a test."""
        if self.test_interval <= 0:
            return 0
        first = -(-self.origin // self.test_interval)
        if first == 0 and not self.test_initialization:
            first = 1
        return max(0, -(-clock // self.test_interval) - first)
