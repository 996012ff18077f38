"""The answer of stage plan, as it is shown, drawn and written as JSON."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from deepspark_ops.exchange.transport.compression import WireDtype
from deepspark_ops.planning.step_time import StepSource


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Row(_Frozen):
    """The prediction for one number of workers.

    Attributes:
        workers: p.
        comm_period: tau.
        n_servers: Key ranges.
        wire_dtype: Of pushed numbers.
        images_per_s: Over all workers.
        efficiency: The same as a share of p times what one worker computes without exchanges.
        staleness: Exchanges of others between two of one worker, mean.
        staleness_p95: The same, exceeded by one exchange of twenty.
        server_load: Share of the time in which the center is busy, 0 to 1.
        exchange_ms: From the last minibatch of a period to the first of the next, mean.
        exchange_share: The same as a share of the workers' time.
        epoch_s: Seconds per epoch; None if the number of samples is not known.
    """

    workers: int
    comm_period: int
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


class Advice(_Frozen):
    """What to choose for one number of workers.

    Attributes:
        row: The prediction with it.
        reason: Why this and nothing less.
    """

    row: Row
    reason: str


class Accuracy(_Frozen):
    """What a number of workers costs in accuracy after as many minibatches as one worker, by measured runs of others.

    Attributes:
        workers: p.
        measured_workers: Of the measured runs: the nearest number below.
        lost_points: Net and data of the measured runs -> per cent of test samples, fewer right than with one worker.
        better: A strategy that lost clearly less there; None for none.
        text: The same for readers.
    """

    workers: int
    measured_workers: int
    lost_points: dict[str, float]
    better: str | None
    text: str


class PlanReport(_Frozen):
    """The answer of stage plan.

    Attributes:
        format_version: Of this report as JSON.
        solver: The file.
        net: The net's name.
        n_params: Length of the parameter vector.
        images_per_step: Samples of a minibatch.
        epoch_images: Samples of an epoch.
        strategy: What runs, with several workers.
        step_ms: Of one minibatch on a core of its own.
        step_source: ``given``, of a ``run``, or an ``estimate`` by operations.
        saturation_workers: Workers at which the center is busy all the time, with the row's own tau and the options
            as given; more of them only queue.
        rows: One per number of workers, options as given.
        advice: One per number of workers, tau, key ranges and wire dtype chosen.
        accuracy: What each number of workers above 1 costs in accuracy; empty for a strategy that was not measured.
        notes: What was assumed.
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
