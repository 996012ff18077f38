"""A worker's reports of progress: loss, exchange, debug and note events, and the sums in these events."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from deepspark_ops.events import MAX_EVENT_BYTES, EventKind, make_event
from deepspark_ops.exchange.transport.link import ExchangeReport, WorkerLink
from deepspark_ops.stores.staging import fetched
from deepspark_ops.train.worker.loop.loop_plan import LoopPlan
from deepspark_ops.train.worker.net.model import StepReport

PULSE_S = 1.0
"""Between two events with a worker's loss, at the least."""
PULSES = 1_000
"""Of a run so far, about: the events become rarer as the run grows, so a run of ten hours has some 4,600 a worker."""
DEBUG_LINES = 1_000
"""Lines of an event: about 100 KiB; a message may have 1 MiB."""
_STATM = Path("/proc/self/statm")


@dataclass
class Interval:
    """Sums since the last loss line.

    Attributes:
        began: Time of the last loss line, by the plan's clock.
        steps: Minibatches computed.
        compute_s: Seconds in the model.
        data_s: Seconds of waiting for batches.
        exchange_s: Seconds of waiting for grants and exchanges.
        aside_s: Seconds of tests, states and idling, which do not count for the rate of images.
        exchanges: Ended exchanges.
        exchanged_bytes: Bytes of these exchanges, up and down.
        latencies_s: Seconds of each exchange.
        staleness: Sum over the exchanges.
        overlaps: Sum over the exchanges.
        distance: Last measured L2 norm of local - center.
        transport: Transport of the last exchange.
        has_first_call: Whether the interval has the model's first call, which builds the graph.
    """

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
    has_first_call: bool = False

    def add_exchange(self, report: ExchangeReport) -> None:
        """Count an exchange."""
        self.exchanges += 1
        self.exchanged_bytes += report.bytes_up + report.bytes_down
        self.latencies_s.append(report.seconds)
        self.staleness += report.staleness
        self.overlaps += report.overlaps
        self.transport = report.transport
        if report.distance is not None:
            self.distance = report.distance


@dataclass(frozen=True)
class Block:
    """The steps of a call of the model: each step has the same share of the call's time.

    Attributes:
        began, ready, ended: Times by the plan's clock: the wait for data began, the data were there, the call ended.
        n_steps: Minibatches of the call, at least 1.
        is_first: Whether the call is the model's first call, which builds the graph.
    """

    began: float
    ready: float
    ended: float
    n_steps: int
    is_first: bool

    def end_of(self, offset: int) -> float:
        """Return the time at the end of step ``offset``, from 0; the last step ended with the call."""
        n_later = self.n_steps - 1 - offset
        return self.ended - (self.ended - self.began) * n_later / self.n_steps


class ProgressLines:
    """Adds up a worker's times and counts and sends them as events. Used by a single thread.

    Attributes:
        sums: Since the last loss line; the loop adds all seconds but the seconds of a block's steps.
        n_steps: Minibatches so far.
        n_exchanges: Exchanges so far.
    """

    def __init__(self, plan: LoopPlan, link: WorkerLink) -> None:
        """Send by a joined link."""
        self._now = plan.time.now
        self.sums = Interval(self._now())
        self.n_steps = 0
        self.n_exchanges = 0
        self._plan = plan
        self._link = link
        self._losses: deque[float] = deque(maxlen=max(1, plan.average_loss))
        self._shown: int | None = None
        self._block = Block(self.sums.began, self.sums.began, self.sums.began, n_steps=1, is_first=False)
        self._offset = 0
        self._began = self._last_shown = self.sums.began

    @property
    def last_loss(self) -> float:
        """Of the last step; NaN before the first."""
        return self._losses[-1] if self._losses else float("nan")

    def begin_block(self, began: float, ready: float, ended: float, *, n_steps: int) -> None:
        """Take the times of a model's call, as in ``Block``, before the first ``step_done`` of the call."""
        self._block = Block(began, ready, ended, n_steps, is_first=self.n_steps == 0)
        self._offset = -1

    def step_done(self, clock: int, loss: float) -> bool:
        """Note a step's loss; return whether a line is due: at the first step at or after a display boundary.

        A single worker reaches every boundary, as in Caffe. Each of several workers shows about a line per boundary.
        """
        self.n_steps += 1
        self._losses.append(loss)
        self._add_step()
        if self._plan.host_load is not None and (load := self._plan.host_load.due_report()) is not None:
            self.send("host", clock, **load)
        is_line_due = self._is_line_due(clock)
        if self._plan.has_pulse and not is_line_due:
            self._pulse(clock)
        return is_line_due

    def _is_line_due(self, clock: int) -> bool:
        display = self._plan.display
        if display <= 0:
            return False
        if self._shown is None:
            self._shown = (clock - 1) // display
        if clock // display <= self._shown:
            return False
        self._shown = clock // display
        return True

    def _pulse(self, clock: int) -> None:
        """Send the loss, if the last line or pulse is older than a second and than a thousandth of the run so far."""
        now, sums = self._now(), self.sums
        if now - self._last_shown < max(PULSE_S, (now - self._began) / PULSES):
            return
        self._last_shown = now
        wall_s = max(1e-9, now - sums.began - sums.aside_s)
        rate = round(sums.steps * self._plan.images_per_step / wall_s, 1)
        self.send("progress", clock, loss=self._mean_loss(), images_per_s=rate)

    def _mean_loss(self) -> float:
        return round(sum(self._losses) / len(self._losses), 6)

    def _add_step(self) -> None:
        block, sums = self._block, self.sums
        self._offset += 1
        sums.steps += 1
        sums.data_s += (block.ready - block.began) / block.n_steps
        sums.compute_s += (block.ended - block.ready) / block.n_steps
        sums.has_first_call = sums.has_first_call or block.is_first

    def exchanged(self, report: ExchangeReport) -> None:
        """Note an exchange."""
        self.n_exchanges += 1
        self.sums.add_exchange(report)

    def is_line_near(self, clock: int) -> bool:
        """Return whether a loss line may come before the next exchange: its distance costs a pass over parameters."""
        if self._plan.display <= 0 or self._shown is None:
            return False
        reach = 2 * self._plan.n_workers * self._plan.comm_period.value
        return clock + reach >= (self._shown + 1) * self._plan.display

    def show(self, clock: int, report: StepReport, offset: int) -> None:
        """Send the lines of step ``offset`` of a report and the sums; begin new sums."""
        if report.debug_lines is not None:
            self.debug(clock, report.debug_lines(offset))
        self._send_sums(clock, report, offset, self._block.end_of(self._offset))

    def finish(self, clock: int, report: StepReport) -> None:
        """Send the sums since the last line, at the clock of the worker's end.

        Caffe, too, displays the loss once more after the last step (BVLC Caffe @9b89154, src/caffe/solver.cpp,
        ``Solver::Solve``).

        Args:
            clock: The clock after the worker's last step.
            report: Report of the model's last call.
        """
        if self._plan.display > 0 and self.sums.steps:
            self._send_sums(clock, report, -1, self._now())

    def _send_sums(self, clock: int, report: StepReport, offset: int, ended: float) -> None:
        self._send_loss(clock, report, offset, ended)
        self._send_exchanges(clock)
        self.send_fetched(clock)
        self.sums = Interval(ended)
        self._last_shown = self._now()

    def _send_loss(self, clock: int, report: StepReport, offset: int, ended: float) -> None:
        sums = self.sums
        wall_s = max(1e-9, ended - sums.began - sums.aside_s)
        data: dict[str, Any] = {
            "loss": self._mean_loss(),
            "learning_rate": float(report.learning_rates[offset]),
            "images_per_s": round(sums.steps * self._plan.images_per_step / wall_s, 1),
            "compute_s": round(sums.compute_s, 3),
            "data_s": round(sums.data_s, 3),
            "exchange_s": round(sums.exchange_s, 3),
        }
        if sums.exchanges:
            data["staleness"] = round(sums.staleness / sums.exchanges, 2)
        if sums.distance is not None:
            data["distance"] = round(sums.distance, 6)
        if report.scales is not None:
            data["loss_scale"] = float(report.scales.begun[offset])
        if (memory := resident_bytes()) is not None:
            data["memory_bytes"] = memory
        if sums.has_first_call:
            data["first_call"] = True
        if outputs := report.scalars(offset, loss=data["loss"]):
            data["outputs"] = outputs
        self.send("loss", clock, seconds_ago=self._now() - ended, **data)

    def _send_exchanges(self, clock: int) -> None:
        sums = self.sums
        if sums.exchanges == 0:
            return
        self.send(
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

    def send_fetched(self, clock: int) -> None:
        """Send the counts of shards fetched from a store since the last call, if any."""
        shards, n_bytes = fetched.taken()
        if shards:
            self.send("fetch", clock, shards=shards, bytes=n_bytes)

    def debug(self, clock: int, lines: Sequence[str], **data: Any) -> None:
        """Send the lines of ``debug_info``; many passes of a deep net need several messages."""
        for start in range(0, len(lines), DEBUG_LINES):
            self.send("debug", clock, **data, lines=list(lines[start : start + DEBUG_LINES]))

    def note(self, clock: int, text: str | None) -> None:
        """Send a note with this text, if any."""
        if text:
            self.send("note", clock, text=text)

    def send(self, kind: EventKind, clock: int, *, seconds_ago: float = 0.0, **data: Any) -> None:
        """Send an event of this worker; a note replaces an event that is too large."""
        event = make_event(kind, clock=clock, worker=self._plan.worker, **data)
        event = replace(event, time=event.time - seconds_ago)
        n_bytes = len(event.to_json())
        if n_bytes > MAX_EVENT_BYTES:
            text = f"an event of kind {kind} with {n_bytes:,} bytes is left out: one may have {MAX_EVENT_BYTES:,}"
            event = make_event("note", clock=clock, worker=self._plan.worker, text=text)
        self._link.send_event(event)


def resident_bytes(statm: Path = _STATM) -> int | None:
    """Return the resident set of this process; None if the kernel gives no number.

    Reads a file of the kernel in some 20 microseconds, once a line.
    """
    try:
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _percentile(values: list[float], percent: int) -> float:
    """Return the smallest value such that ``percent`` of all values are not larger.

    Example:
        >>> _percentile([0.3, 0.1, 0.2], 99), _percentile(list(range(1, 201)), 99)
        (0.3, 198)
    """
    return sorted(values)[-(-len(values) * percent // 100) - 1]
