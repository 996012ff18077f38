"""The report of stage plan, for tables, pictures and JSON."""

from __future__ import annotations

from typing import Final

from deepspark_ops.exchange.transport.compression import WireDtype
from deepspark_ops.frozen_model import FrozenModel
from deepspark_ops.planning.step_time import StepSource

MEASURED_WORKERS: Final = 1_000
"""A server was measured with so many scripted workers (``benchmarks/scaling.py``)."""


class Row(FrozenModel):
    """Prediction for a number of workers.

    Attributes:
        workers: p.
        comm_period: tau.
        root_comm_period: tau of hosts; 0 without a tree of centers.
        n_servers: Key ranges.
        wire_dtype: Type of pushed numbers.
        images_per_s: Rate of all workers.
        efficiency: Rate relative to p workers without exchanges.
        staleness: Mean number of other workers' exchanges between two exchanges of a worker.
        staleness_p95: 95th percentile of the staleness.
        server_load: Share of the time in which the center is busy, 0 to 1.
        exchange_ms: Mean time from the last minibatch of a period to the first of the next.
        exchange_share: Share of the exchanges in the workers' time.
        epoch_s: Seconds per epoch; None if the number of samples is unknown.
    """

    workers: int
    comm_period: int
    root_comm_period: int
    n_servers: int
    wire_dtype: WireDtype
    images_per_s: float
    efficiency: float
    staleness: float
    staleness_p95: float
    server_load: float
    exchange_ms: float
    exchange_share: float
    epoch_s: float | None

    @property
    def tau(self) -> str:
        """tau; in a tree of centers of workers and of hosts."""
        return f"{self.comm_period}, hosts {self.root_comm_period}" if self.root_comm_period else str(self.comm_period)

    @property
    def is_extrapolated(self) -> bool:
        """Whether the row has more workers than a measured server."""
        return self.workers > MEASURED_WORKERS


class Advice(FrozenModel):
    """Advised choice for a number of workers.

    Attributes:
        row: Prediction with the choice.
        reason: Reason of the choice.
    """

    row: Row
    reason: str


class Accuracy(FrozenModel):
    """Loss of accuracy with a number of workers after the minibatches of one worker, from measured runs of other nets.

    Attributes:
        workers: p.
        measured_workers: Workers of the measured runs: the nearest smaller number.
        lost_points: Net and data of the measured runs -> loss of test accuracy against one worker, percentage points.
        better: A strategy with a clearly smaller loss; None without such a strategy.
        text: The same for readers.
    """

    workers: int
    measured_workers: int
    lost_points: dict[str, float]
    better: str | None
    text: str


class PlanReport(FrozenModel):
    """The answer of stage plan.

    Attributes:
        format_version: Version of the report as JSON.
        solver: File of the solver.
        net: The net's name.
        n_params: Length of the parameter vector.
        images_per_step: Samples of a minibatch.
        epoch_images: Samples of an epoch.
        strategy: Strategy of several workers.
        step_ms: Milliseconds of a minibatch on a free core.
        step_source: ``given``, of a ``run``, or an ``estimate`` by operations.
        saturation_workers: Number of workers that keep the center busy all the time, with the last row's tau and the
            configured options; further workers only queue.
        rows: A row per number of workers, with the configured options.
        advice: Advice per number of workers: tau, key ranges and wire dtype.
        accuracy: Loss of accuracy for each number of workers above 1; empty for a strategy without measurements.
        notes: Assumptions.
    """

    format_version: int
    solver: str
    net: str
    n_params: int
    images_per_step: int
    epoch_images: int | None
    strategy: str
    step_ms: float
    step_source: StepSource
    saturation_workers: int
    rows: tuple[Row, ...]
    advice: tuple[Advice, ...]
    accuracy: tuple[Accuracy, ...]
    notes: tuple[str, ...]
