"""The driver's work while workers train: events to log and TensorBoard, gathered parts to snapshots. No Spark."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepspark_ops.errors import ConfigError, DeepSparkError, TrainingFailed
from deepspark_ops.events import Event, append_event, format_event, make_event
from deepspark_ops.exchange.transport.link import ExchangeStatus
from deepspark_ops.run_view.event_tail import EventTail
from deepspark_ops.stores.staging import fetched
from deepspark_ops.train.driver.early_stop import EarlyStop
from deepspark_ops.train.driver.tensorboard_file import TensorBoardFile
from deepspark_ops.train.snapshots.snapshot import SnapshotWriter
from deepspark_ops.train.worker.outcome import WorkerOutcome

_LOG = logging.getLogger(__name__)
_QUIET = ("progress", "exchange", "epoch", "fetch", "host", "watch")
"""Kinds for machines: small data have an epoch every second."""
SERVER_LINE_EVERY_S = 30.0
"""The server reports more often than that; the events have every report."""


@dataclass
class Throughput:
    """Images per second of the whole run, from the first return of minibatches by every worker.

    Attributes:
        images_per_step: Samples of a minibatch.
    """

    images_per_step: int
    _first: tuple[float, int] | None = None
    _last: tuple[float, int] | None = None
    _has_all: bool = False

    def see(self, now: float, n_done: int, *, has_all: bool = True) -> None:
        """Take the number of minibatches at a time.

        Args:
            now: The time in seconds.
            n_done: Minibatches done.
            has_all: Whether every present worker has returned a minibatch. Otherwise the reading would count
                minibatches of other workers without their time.
        """
        if self._last is None or n_done > self._last[1]:
            self._last = (now, n_done)
            # The start time of the first reading's minibatches is unknown.
            if self._first is None or (has_all and not self._has_all):
                self._first, self._has_all = self._last, has_all

    def images_per_s(self) -> float | None:
        """Return the rate; None if the run was too short for a rate."""
        if self._first is None or self._last is None or self._last[1] == self._first[1]:
            return None
        seconds = self._last[0] - self._first[0]
        return (self._last[1] - self._first[1]) * self.images_per_step / seconds if seconds > 0 else None


class RunWatch:
    """The driver's work while workers train, in one thread: repeated calls of ``step``, then ``finish``.

    Attributes:
        clock: Minibatches done, as the exchange last said.
        early_stop: Compares the tests with the accuracies of ``stop_below``.
        fetched_shards: Copies of shards that workers and this process fetched from a store.
        fetched_bytes: Bytes of these copies.
    """

    def __init__(
        self,
        events: Path,
        board: TensorBoardFile,
        snapshots: SnapshotWriter,
        *,
        images_per_step: int,
        first: int,
        early_stop: EarlyStop,
    ) -> None:
        """Take over ``board``.

        Args:
            events: The run's ``events.jsonl``.
            board: Gets the curves.
            snapshots: Assembles what the exchange gathered.
            images_per_step: Samples of a minibatch.
            first: Clock the run starts from.
            early_stop: Gets the tests.
        """
        self.early_stop = early_stop
        self._events = events
        self._tail = EventTail(events)
        self._board = board
        self._snapshots = snapshots
        self._throughput = Throughput(images_per_step)
        self._first = self.clock = first
        self.fetched_shards = self.fetched_bytes = 0
        self._written: set[int] = set()
        self._fatal: DeepSparkError | None = None
        self._lost: dict[int, Event] = {}
        self._exchanges_when_lost: dict[int, int] = {}
        self._reported: set[int] = set()
        self._told_of_devices = False
        self._max_iter: int | None = None
        self._started: Event | None = None
        self._has_ended = False
        self._server_line_due = float("-inf")

    @property
    def written(self) -> tuple[int, ...]:
        """Iterations of the snapshots written, ascending."""
        return tuple(sorted(self._written))

    def step(self, poll: Callable[[], ExchangeStatus]) -> ExchangeStatus:
        """Look once: show events, write snapshots, and return the exchange's state.

        Raises:
            ConfigError, TrainingFailed: A worker met an error that no further try cures, or the exchange cannot go on.
            ExchangeUnavailable: The server does not answer.
        """
        self._show_events()
        if self._fatal is not None:
            raise self._fatal
        status = poll()
        self.clock = max(self.clock, status.acknowledged)
        for worker in self._lost.keys() - self._exchanges_when_lost.keys():
            self._exchanges_when_lost[worker] = status.exchanges[worker]
        if status.failure:
            raise TrainingFailed(status.failure)
        if status.acknowledged > self._first:
            has_all = len(status.exchanges) == 1 or all(status.exchanges[worker] for worker in status.live_workers)
            self._throughput.see(time.monotonic(), status.acknowledged, has_all=has_all)
        for iteration in status.snapshots:
            if iteration not in self._written and self._snapshots.is_pending(iteration):
                self._write(iteration)
        return status

    def missing(self, status: ExchangeStatus) -> dict[int, Event]:
        """Return worker -> event of the loss, for lost workers without an exchange since; ascending."""
        counts = self._exchanges_when_lost
        return {
            worker: event
            for worker, event in sorted(self._lost.items())
            if status.exchanges[worker] <= counts.get(worker, status.exchanges[worker])
        }

    def report_ended(self, ended: Sequence[WorkerOutcome]) -> None:
        """Report each worker without a further start once: the other workers may go on for days.

        A worker that could not join has sent no event of its own.

        Args:
            ended: The outcomes at the last ``step``, at the latest.
        """
        for outcome in ended:
            if outcome.ending in ("given_up", "refused") and outcome.worker not in self._reported:
                self._reported.add(outcome.worker)
                reason = outcome.message.removeprefix(f"worker {outcome.worker}: ")
                data = {"reason": reason, "ending": outcome.ending}
                append_event(self._events, make_event("worker_lost", clock=self.clock, worker=outcome.worker, **data))

    def speed(self) -> dict[str, float]:
        """Return ``images_per_s`` so far, for the event of the end; empty if the run was too short for a rate."""
        rate = self._throughput.images_per_s()
        return {} if rate is None else {"images_per_s": round(rate, 1)}

    def note(self, text: str, *, clock: int, spark_ui: str | None = None) -> None:
        """Write a line of the driver to events and log; ``spark_ui`` is the address of Spark's pages in the line."""
        data: dict[str, Any] = {} if spark_ui is None else {"spark_ui": spark_ui}
        append_event(self._events, make_event("note", clock=clock, text=text, **data))

    def warn(self, text: str, *, clock: int) -> None:
        """Write a warning of the driver to events and log; the run's page and report show the warning."""
        append_event(self._events, make_event("note", clock=clock, text=text, warning=True))

    def finish(self) -> None:
        """Show what is still unread and close the curves."""
        try:
            self._show_events()
        finally:
            self._board.close()

    def _write(self, iteration: int) -> None:
        began = time.monotonic()
        snapshot = self._snapshots.assemble(iteration)
        self._written.add(iteration)
        seconds = round(time.monotonic() - began, 3)
        append_event(
            self._events, make_event("snapshot", clock=iteration, weights=str(snapshot.weights), seconds=seconds)
        )

    def _add_fetched(self, n_shards: int, n_bytes: int) -> None:
        self.fetched_shards += n_shards
        self.fetched_bytes += n_bytes

    def _show_events(self) -> None:
        self._add_fetched(*fetched.taken())  # the driver reads samples, too: the first sample, and the samples of tests
        first_before = self._tail.position.first
        events = self._tail.read()
        if first_before is not None and self._tail.position.first != first_before:
            self._tell_of_lost_events()
        for event in events:
            self._board.add(event)
            self.early_stop.see(event)
            self._show(event)
            if event.kind == "fetch":
                self._add_fetched(event.data.get("shards", 0), event.data.get("bytes", 0))
            if event.kind == "worker_devices":
                self._tell_of_devices(event)
            if event.kind == "worker_lost":
                self._lost[event.worker] = event
                self._exchanges_when_lost.pop(event.worker, None)
                self._fatal = self._fatal or _fatal_error(event)

    def _tell_of_lost_events(self) -> None:
        """Begin the file anew with the start event, which pages need; the other lost events were for people only."""
        if self._started is not None:
            append_event(self._events, self._started)
        text = f"{self._events} was removed or replaced: what it told of the run before is lost, the run goes on"
        self.warn(text, clock=self.clock)

    def _show(self, event: Event) -> None:
        """Write an event's lines to the log."""
        if event.kind == "stage" and isinstance(max_iter := event.data.get("max_iter"), int):
            self._max_iter, self._started, self._has_ended = max_iter, event, False
        elif event.kind == "stage":
            self._has_ended = True
        if event.kind in _QUIET or (event.kind == "server" and not self._is_server_line_due(event)):
            return
        is_warning = event.kind == "worker_lost" or (event.kind == "note" and event.data.get("warning") is True)
        level = logging.WARNING if is_warning else logging.INFO
        for line in format_event(event, max_iter=self._max_iter).splitlines():
            _LOG.log(level, "%s", line)

    def _is_server_line_due(self, event: Event) -> bool:
        """Return whether to show a report of the server: the last line is old, and workers still compute."""
        if self._has_ended or (self._max_iter is not None and event.clock >= self._max_iter):
            return False
        due = self._server_line_due
        if due - SERVER_LINE_EVERY_S <= event.time < due:  # else the line is old, or the host's clock was put back
            return False
        self._server_line_due = event.time + SERVER_LINE_EVERY_S
        return True

    def _tell_of_devices(self, event: Event) -> None:
        """Note once why workers do not compute on the requested devices: each worker's event has the reason."""
        if (text := event.data.get("note")) and not self._told_of_devices:
            self._told_of_devices = True
            self.note(str(text), clock=event.clock)


def _fatal_error(event: Event) -> DeepSparkError | None:
    """Return the error in a worker's last event; None if another try may help."""
    ending, reason = event.data.get("ending"), str(event.data.get("reason", ""))
    if ending == "refused":
        return ConfigError(reason)
    return TrainingFailed(reason) if ending == "failed" else None
