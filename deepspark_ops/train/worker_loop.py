"""The one loop of every worker: ask for a grant, compute it, exchange, return it. No framework and no socket.

The loop sees a ``Model`` (the compiled net), a ``WorkerLink`` (the way to server and center) and a ``BatchSource``.
It is the same for all six solver types, for one worker and for many; with one worker it is Caffe's ``Solver::Step``
(BVLC Caffe @9b89154, src/caffe/solver.cpp): test, display and snapshot happen before the update of their iteration.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from caffe_import.param_layout import Vector
from deepspark_ops.errors import TrainingFailed
from deepspark_ops.events import EventKind, make_event
from deepspark_ops.exchange.grants import Finished, Grant, GrantAnswer, Wait
from deepspark_ops.exchange.link import ExchangeReport, WorkerLink
from deepspark_ops.exchange.round_closing import RoundNote
from deepspark_ops.train.background_exchange import BackgroundExchange
from deepspark_ops.train.pacing import CommPeriod, RateScale, scheduled
from deepspark_ops.train.worker_state import WorkerState

HEARTBEAT_S = 1.0
DEBUG_LINES = 1_000
"""Lines of one event: about 100 KiB, where a message may have 1 MiB."""

Feeds = Mapping[str, npt.NDArray[Any]]
"""Data blob -> array of shape (n_batches, *blob shape): one entry per forward pass."""


@dataclass(frozen=True)
class StepReport:
    """What some consecutive steps gave.

    Attributes:
        losses: Weighted loss of each step, mean over its iter_size passes, before its update; shape (n_steps,).
        learning_rates: Rate each update used, rate scale included; shape (n_steps,).
        outputs: Output blob -> its value in each step's last pass, shape (n_steps, ...).
        debug_lines: Position of a step -> its lines for ``debug_info``; None if the solver does not ask for them.
    """

    losses: npt.NDArray[np.float32]
    learning_rates: npt.NDArray[np.float32]
    outputs: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    debug_lines: Callable[[int], list[str]] | None = None

    def scalars(self, offset: int) -> dict[str, float]:
        """Return one step's scalar outputs; none where the only output is the loss, which is reported anyway."""
        if len(self.outputs) < 2:
            return {}
        return {name: round(float(value[offset]), 6) for name, value in self.outputs.items() if value[offset].size == 1}


class Model(Protocol):
    """A compiled net with a worker's own parameters and state; used by one thread."""

    def run(self, *, step: int, n_steps: int, rate_scale: float, feeds: Feeds) -> StepReport:
        """Make ``n_steps`` updates, the first at clock ``step``; ``feeds`` holds n_steps * iter_size batches."""

    def local(self) -> Vector:
        """Return a read-only view of what is exchanged, shape (n_params,), valid until the next change.

        That is the parameters, or the gradient of the last step where the strategy's workers push gradients.
        """

    def round_note(self) -> RoundNote | None:
        """Return what the server wants to know of a pushed gradient; None where parameters are exchanged."""

    def replace_local(self, local: Vector) -> None:
        """Take a fresh vector as the parameters; the caller gives it away."""

    def state(self) -> WorkerState:
        """Return the worker's own state; the arrays may be views that live until the next change."""

    def test(self, net: int, params: Vector, feeds: Feeds) -> Mapping[str, npt.NDArray[np.float32]]:
        """Return the outputs of one forward pass of test net ``net`` with the training net's parameter vector."""

    def test_debug_lines(self, net: int) -> list[str]:
        """Return the ``debug_info`` lines of that net's last pass; none if the solver does not ask for them."""

    def write_outputs(self, offset: int) -> None:
        """Write the files of the training net's HDF5Output layers, as of step ``offset`` of the last ``run``."""

    def write_test_outputs(self, net: int) -> None:
        """Write the files of a test net's HDF5Output layers: the passes since the last call."""


class BatchSource(Protocol):
    """The worker's data, already transformed; used by one thread."""

    def take(self, max_steps: int) -> tuple[Feeds, int]:
        """Return batches for n steps, 1 <= n <= max_steps, and n; waits for data. Valid until the next call.

        n is 0 once the server gives out no more data, since every step of the run is done.
        """

    def test_batches(self, net: int, ordinal: int) -> Iterator[Feeds]:
        """Yield the test_iter batches of the ``ordinal``-th test (from 0) of a test net: blob -> its full shape."""

    def leases(self) -> Mapping[str, Mapping[str, int]]:
        """Return the samples used of each open lease, as ``WorkerLink.send_state`` takes it: dataset -> id -> count."""


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
        display: Minibatches of the clock between loss lines, 0 for none.
        average_loss: Steps that the displayed loss is averaged over.
        n_test_nets: Number of test nets.
        test_interval: Minibatches of the clock between tests, 0 for none.
        test_initialization: Is there a test at clock 0?
        overlaps: Does the exchange of one grant run while the next one is computed?
        waits_in_rounds: Do all workers have the same parameters after an exchange (the strategy's choice)?
        moving_rates: alpha by the clock, (clock, alpha) from 0 on; empty where it stays as the link has it.
    """

    worker: int
    n_workers: int
    comm_period: CommPeriod
    rate_scale: RateScale
    images_per_step: int
    origin: int
    base_lr: float
    display: int
    average_loss: int
    n_test_nets: int
    test_interval: int
    test_initialization: bool
    waits_in_rounds: bool = False
    overlaps: bool = False
    moving_rates: Sequence[tuple[int, float]] = ()

    def tests_before(self, clock: int) -> int:
        """Return how many tests of this run lie before ``clock``: the data position of a test, whoever runs it."""
        if self.test_interval <= 0:
            return 0
        first = -(-self.origin // self.test_interval)
        if first == 0 and not self.test_initialization:
            first = 1
        return max(0, -(-clock // self.test_interval) - first)


@dataclass
class _Interval:
    """Sums since the last loss line."""

    began: float
    steps: int = 0
    compute_s: float = 0.0
    data_s: float = 0.0
    exchange_s: float = 0.0
    aside_s: float = 0.0
    exchanges: int = 0
    exchanged_bytes: int = 0
    latencies_s: list[float] = field(default_factory=list)
    staleness: int = 0
    overlaps: int = 0
    distance: float | None = None
    transport: str = ""


@dataclass(frozen=True)
class WorkerSummary:
    """What a worker did, for the driver."""

    worker: int
    steps: int
    exchanges: int
    last_loss: float


class WorkerLoop:
    """Runs one worker to the end of the run. Used by one thread; ``run`` once."""

    def __init__(self, model: Model, link: WorkerLink, batches: BatchSource, plan: LoopPlan) -> None:
        """Take a joined link and a model that already holds the center's parameters (or the worker's saved ones)."""
        self._model = model
        self._link = link
        self._batches = batches
        self._plan = plan
        self._losses: deque[float] = deque(maxlen=max(1, plan.average_loss))
        self._shown: int | None = None
        self._interval = _Interval(time.monotonic())
        self._last_sign = time.monotonic()
        self._steps = 0
        self._exchanges = 0
        self._background = BackgroundExchange(link) if plan.overlaps else None
        self._pending: Grant | None = None
        self._next: GrantAnswer | None = None
        self._last_staleness = 0
        self._was_idle = False
        self._moving_rate = scheduled(plan.moving_rates, 0) if plan.moving_rates else 0.0

    def run(self) -> WorkerSummary:
        """Work until the server says that the run is finished.

        Raises:
            TrainingFailed: The loss stopped being finite; the vector that caused it is not pushed.
            ExchangeUnavailable: The server stayed silent; the worker may be started again.
        """
        try:
            return self._run()
        finally:
            if self._background is not None:
                self._background.close()

    def _run(self) -> WorkerSummary:
        while True:
            asked = time.monotonic()
            answer, self._next = self._next or self._link.request_grant(self._plan.comm_period.value), None
            if isinstance(answer, Finished):
                if self._steps:
                    self._model.write_outputs(-1)
                return WorkerSummary(
                    self._plan.worker, self._steps, self._exchanges, self._losses[-1] if self._losses else float("nan")
                )
            if isinstance(answer, Wait):
                if not self._take_exchanged():
                    time.sleep(answer.seconds)
                self._was_idle = True
                self._interval.aside_s += time.monotonic() - asked
                continue
            self._work(answer, time.monotonic() - asked)

    def _work(self, grant: Grant, request_s: float) -> None:
        began = time.monotonic()
        if grant.state_for or grant.tests:
            self._take_exchanged()
        if grant.state_for:
            self._send_state(grant.state_for)
        if grant.tests:
            self._run_tests(grant.start)
        self._follow_schedules(grant.start)
        self._interval.aside_s += time.monotonic() - began
        if grant.count and self._was_idle and self._plan.waits_in_rounds:
            self._model.replace_local(self._link.pull())  # the others went on without this worker
        self._was_idle = False
        compute_s = self._compute(grant) if grant.count else 0.0
        began = time.monotonic()
        if grant.count and self._plan.comm_period.is_due and self._background is not None:
            self._exchange_in_background(grant, self._background)
        else:
            if grant.count and self._plan.comm_period.is_due:
                self._exchange(grant.stop)
            self._link.acknowledge(grant)
        exchange_s = request_s + time.monotonic() - began
        self._interval.exchange_s += exchange_s
        reason = self._plan.comm_period.observe(n_steps=grant.count, compute_s=compute_s, exchange_s=exchange_s)
        if reason:
            self._send("note", grant.stop, text=reason)

    def _follow_schedules(self, clock: int) -> None:
        if reason := self._plan.comm_period.reach(clock):
            self._send("note", clock, text=reason)
        if not self._plan.moving_rates:
            return
        before, self._moving_rate = self._moving_rate, scheduled(self._plan.moving_rates, clock)
        if self._moving_rate != before:
            self._link.use_moving_rate(self._moving_rate)
            text = f"moving_rate {self._moving_rate:g}: as scheduled from minibatch {clock} on"
            self._send("note", clock, text=text)

    def _send_state(self, iteration: int) -> None:
        meta, arrays = self._model.state().to_parts()
        self._link.send_state(iteration, {**meta, "leases": self._batches.leases()}, arrays)

    def _run_tests(self, clock: int) -> None:
        """Run every test net on a copy of the center; with one worker that is its own parameters, as in Caffe."""
        params = self._link.look()
        ordinal = self._plan.tests_before(clock)
        for net in range(self._plan.n_test_nets):
            began = time.monotonic()
            sums: dict[str, npt.NDArray[np.float64]] = {}
            n_batches = 0
            for feeds in self._batches.test_batches(net, ordinal):
                n_batches += 1
                self._give_sign_of_life()
                for name, value in self._model.test(net, params, feeds).items():
                    sums[name] = sums.get(name, np.zeros(np.shape(value))) + np.asarray(value, dtype=np.float64)
                if n_batches == 1 and (lines := self._model.test_debug_lines(net)):
                    self._send_lines(clock, lines, test_net=net)
            self._model.write_test_outputs(net)
            means = {name: (total / n_batches).tolist() for name, total in sums.items()}
            means["seconds"] = round(time.monotonic() - began, 3)
            self._send("evaluation", clock, test_net=net, **means)

    def _give_sign_of_life(self) -> None:
        """Keep the grant during a long test; a message per second costs nothing."""
        now = time.monotonic()
        if now - self._last_sign >= HEARTBEAT_S:
            self._last_sign = now
            self._link.heartbeat()

    def _compute(self, grant: Grant) -> float:
        """Run the granted steps; return the seconds spent computing."""
        step, compute_s = grant.start, 0.0
        while step < grant.stop:
            began = time.monotonic()
            feeds, n_steps = self._batches.take(grant.stop - step)
            if n_steps == 0:  # the run ended elsewhere: somebody else was given these steps and has done them
                break
            ready = time.monotonic()
            report = self._model.run(step=step, n_steps=n_steps, rate_scale=self._plan.rate_scale.at(step), feeds=feeds)
            done = time.monotonic()
            self._interval.data_s += ready - began
            self._interval.compute_s += done - ready
            compute_s += done - ready
            self._account(step, report)
            step += n_steps
        return compute_s

    def _account(self, first: int, report: StepReport) -> None:
        self._interval.steps += len(report.losses)
        self._plan.comm_period.spend(report.losses.tolist())
        for offset, loss in enumerate(report.losses.tolist()):
            if not np.isfinite(loss):
                raise TrainingFailed(self._explain_divergence(first + offset, loss, report.learning_rates[offset]))
            self._losses.append(loss)
            self._steps += 1
            self._show(first, offset, report)

    def _explain_divergence(self, clock: int, loss: float, learning_rate: float) -> str:
        plan = self._plan
        if learning_rate == 0.0:
            return (
                f"worker {plan.worker}: loss is {loss} at minibatch {clock}, where the search has led it;"
                " begin from smaller weights, raise weight_decay, or choose another strategy"
            )
        return (
            f"worker {plan.worker}: loss is {loss} at minibatch {clock} (learning_rate={learning_rate:.6g} ="
            f" base_lr={plan.base_lr:g} by its policy, times rate_scale={plan.rate_scale.at(clock):g});"
            " the steps are too large: lower base_lr in the solver, or set rate_scale to none or a smaller number"
        )

    def _show(self, first: int, offset: int, report: StepReport) -> None:
        """Send the loss line if this is the worker's first step at or after a display boundary.

        One worker meets every boundary itself, as Caffe; of many each shows about one line per boundary.
        """
        display, clock = self._plan.display, first + offset
        if display <= 0:
            return
        if self._shown is None:
            self._shown = (clock - 1) // display
        if clock // display <= self._shown:
            return
        self._shown = clock // display
        self._model.write_outputs(offset)
        if report.debug_lines is not None:
            self._send_lines(clock, report.debug_lines(offset))
        outputs = report.scalars(offset)
        now, sums = time.monotonic(), self._interval
        wall_s = max(1e-9, now - sums.began - sums.aside_s)
        exchanged: dict[str, Any] = {}
        if sums.exchanges:
            exchanged["staleness"] = round(sums.staleness / sums.exchanges, 2)
        if sums.distance is not None:
            exchanged["distance"] = round(sums.distance, 6)
        self._send(
            "loss",
            clock,
            loss=round(sum(self._losses) / len(self._losses), 6),
            learning_rate=float(report.learning_rates[offset]),
            images_per_s=round(sums.steps * self._plan.images_per_step / wall_s, 1),
            compute_s=round(sums.compute_s, 3),
            data_s=round(sums.data_s, 3),
            exchange_s=round(sums.exchange_s, 3),
            **exchanged,
            **({"outputs": outputs} if outputs else {}),
        )
        self._send_exchange_summary(clock)
        self._interval = _Interval(now)

    def _send_exchange_summary(self, clock: int) -> None:
        sums = self._interval
        if sums.exchanges == 0:
            return
        self._send(
            "exchange",
            clock,
            exchanges=sums.exchanges,
            seconds=round(sums.exchange_s, 4),
            bytes=sums.exchanged_bytes,
            p99_ms=round(1e3 * _percentile(sums.latencies_s, 99), 3),
            overlaps=sums.overlaps,
            comm_period=self._plan.comm_period.value,
            transport=sums.transport,
        )

    def _exchange(self, clock: int) -> None:
        local, report = self._link.exchange(
            self._model.local(), measure_distance=self._shows_soon(clock), note=self._model.round_note()
        )
        self._model.replace_local(local)
        self._count_exchange(clock, report)

    def _exchange_in_background(self, grant: Grant, background: BackgroundExchange) -> None:
        """Have this grant's parameters exchanged while the next one is computed; the exchange before is over then."""
        self._take_exchanged()
        # Asked for first: by socket, an exchange has the connection to itself.
        self._next = self._link.request_grant(self._plan.comm_period.value, held=grant)
        background.start(self._model.local(), measure_distance=self._shows_soon(grant.stop))
        self._pending = grant

    def _take_exchanged(self) -> bool:
        """Wait for the exchange under way, if there is one, and apply it to what the model has become meanwhile."""
        grant, self._pending = self._pending, None
        if grant is None or self._background is None:
            return False
        local, report = self._background.finish(self._model.local())
        self._model.replace_local(local)
        # The steps made meanwhile know the center as it was one exchange earlier.
        staleness = report.staleness + self._last_staleness
        self._last_staleness = report.staleness
        self._count_exchange(grant.stop, report._replace(staleness=staleness))
        self._link.acknowledge(grant)
        return True

    def _count_exchange(self, clock: int, report: ExchangeReport) -> None:
        if reason := self._plan.comm_period.exchanged():
            self._send("note", clock, text=reason)
        self._exchanges += 1
        sums = self._interval
        sums.exchanges += 1
        sums.exchanged_bytes += report.bytes_up + report.bytes_down
        sums.latencies_s.append(report.seconds)
        sums.staleness += report.staleness
        sums.overlaps += report.overlaps
        sums.transport = report.transport
        if report.distance is not None:
            sums.distance = report.distance

    def _shows_soon(self, clock: int) -> bool:
        """May a loss line come before the next exchange? The distance it shows costs a pass over the parameters."""
        if self._plan.display <= 0 or self._shown is None:
            return False
        reach = 2 * self._plan.n_workers * self._plan.comm_period.value
        return clock + reach >= (self._shown + 1) * self._plan.display

    def _send_lines(self, clock: int, lines: Sequence[str], **data: Any) -> None:
        """Send the lines of ``debug_info``; many passes of a deep net do not fit into one message."""
        for start in range(0, len(lines), DEBUG_LINES):
            self._send("debug", clock, **data, lines=list(lines[start : start + DEBUG_LINES]))

    def _send(self, kind: EventKind, clock: int, **data: Any) -> None:
        self._link.send_event(make_event(kind, clock=clock, worker=self._plan.worker, **data))


def _percentile(values: list[float], percent: int) -> float:
    """Return the smallest value that ``percent`` of all do not exceed.

    Example:
        >>> _percentile([0.3, 0.1, 0.2], 99), _percentile(list(range(1, 201)), 99)
        (0.3, 198)
    """
    return sorted(values)[-(-len(values) * percent // 100) - 1]
