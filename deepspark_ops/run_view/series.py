"""The numbers of a run as columns: one row per report, taken event by event.

A run that resumes from a snapshot repeats clocks. Rows beyond the clock of the snapshot describe discarded weights; the
start event drops these rows.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from deepspark_ops.events import DRIVER, NOT_OUTPUTS, Event

SECONDS = ("compute_s", "data_s", "exchange_s")
"""Parts of a worker's time since its last report: computing, waiting for data, exchanging."""
WORKER_NUMBERS = ("loss", "learning_rate", "images_per_s", *SECONDS, "staleness", "distance", "memory_bytes")
HOST_NUMBERS = ("cpu", "memory", "gpu", "gpu_memory", "network_bytes_per_s", "disk_bytes_per_s")
SERVER_NUMBERS = ("exchanges_per_s", "bytes_per_s", "staleness", "lost_updates")
_UNREPORTED = array("d", [math.nan])
"""In a column, NaN stands for a missing number, infinity for a value that is not finite."""
Floats = npt.NDArray[np.float64]


class Columns:
    """Rows of numbers in the order of their events. Not thread-safe.

    A line leaves out rows without its number; a value that is not finite, and a row by ``gap``, break the line.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.clock = array("d")
        self.time = array("d")
        self.at = array("d")
        self.values: dict[str, array[float]] = {}

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.clock)

    def add(self, clock: float, time: float, at: int, values: Mapping[str, float]) -> None:
        """Append a row.

        Args:
            clock: Minibatches over all workers.
            time: Seconds since the epoch.
            at: Offset after the event's line in its file.
            values: Numbers by name.
        """
        n_rows = len(self.clock)
        self.clock.append(clock)
        self.time.append(time)
        self.at.append(at)
        columns = self.values
        for name, value in values.items():
            column = columns.get(name)
            if column is None or len(column) != n_rows:
                column = self._column(name, n_rows)
            column.append(value if -math.inf < value < math.inf else math.inf)

    def _column(self, name: str, n_rows: int) -> array[float]:
        """Return a column with a value for each of the first ``n_rows`` rows."""
        column = self.values.setdefault(name, array("d"))
        column.extend(_UNREPORTED * (n_rows - len(column)))
        return column

    def gap(self, clock: float, time: float, at: int) -> None:
        """Break every line here."""
        self.add(clock, time, at, dict.fromkeys(self.values, math.inf))

    def cut(self, clock: float) -> None:
        """Drop the rows beyond a clock."""
        kept_rows = np.flatnonzero(np.asarray(self.clock) <= clock)
        if len(kept_rows) < len(self):
            self.clock, self.time, self.at = (
                _selected(column, kept_rows) for column in (self.clock, self.time, self.at)
            )
            self.values = {name: _selected(self._column(name, len(self)), kept_rows) for name in self.values}

    def line(self, name: str, *, after_offset: int = -1) -> tuple[Floats, Floats, Floats]:
        """Return clock, time and value, each of shape ``(n,)``, of the rows whose event ends after ``after_offset``.

        A value of infinity is a gap in the line.
        """
        first = bisect_right(self.at, after_offset)
        columns = (self.clock, self.time, self._column(name, len(self)))
        clock, time, value = (np.array(column[first:], np.float64) for column in columns)
        has_value = ~np.isnan(value)
        return clock[has_value], time[has_value], value[has_value]


def _selected(column: array[float], kept_rows: npt.NDArray[np.intp]) -> array[float]:
    return array("d", np.asarray(column)[kept_rows].tolist())


class RunSeries:
    """All lines of a run. Not thread-safe.

    Attributes:
        workers: Worker -> ``WORKER_NUMBERS`` of its reports.
        all_workers: All workers together: ``loss`` (mean), ``images_per_s`` (sum), ``learning_rate`` (of the last
            report), and the shares ``SECONDS`` of their time. Each row combines the last report of each worker;
            ``_take_report`` adds the rows.
        tests: Test net -> its scalar outputs.
        hosts: Name of a host -> ``HOST_NUMBERS`` of its load.
        server: ``SERVER_NUMBERS`` of the exchange as a whole.
        epochs: ``epoch`` of the first dataset in the events.
        cut_at: Offset after the last event that dropped rows; -1 without such an event.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.workers: dict[int, Columns] = {}
        self.all_workers = Columns()
        self.tests: dict[int, Columns] = {}
        self.hosts: dict[str, Columns] = {}
        self.server = Columns()
        self.epochs = Columns()
        self.cut_at = -1
        self._dataset: str | None = None
        self._last = _LastReports()

    def take(self, event: Event, at: int) -> None:
        """Take an event whose line ends at offset ``at``."""
        match event.kind:
            case "stage" if event.data.get("status") == "started":
                self._start_again(event.clock, at)
            case "stage" if self._last.has_news:
                self._add_whole(at)
            case "worker_joined":
                self._last.expect(event.worker)
            case "loss" | "progress" if event.worker != DRIVER:
                self._take_report(event, at)
            case "worker_lost":
                self._take_lost_worker(event, at)
            case "evaluation":
                net = int(event.data.get("test_net", 0))
                columns = self.tests.setdefault(net, Columns())
                columns.add(event.clock, event.time, at, net_outputs(event))
            case "server":
                self.server.add(event.clock, event.time, at, _named(event.data, SERVER_NUMBERS))
            case "host":
                columns = self.hosts.setdefault(str(event.data.get("host", "")), Columns())
                columns.add(event.clock, event.time, at, _named(event.data, HOST_NUMBERS))
            case "epoch":
                self._take_epoch(event, at)

    def _start_again(self, clock: int, at: int) -> None:
        self._last = _LastReports()
        tables = list(self._tables())
        if any(table.clock and max(table.clock) > clock for table in tables):
            self.cut_at = at
        for table in tables:
            table.cut(clock)

    def _tables(self) -> Iterator[Columns]:
        yield from (*self.workers.values(), self.all_workers, *self.tests.values(), *self.hosts.values())
        yield from (self.server, self.epochs)

    def _take_report(self, event: Event, at: int) -> None:
        """Add a worker's report, and add a row of all workers if the row is due.

        The first row is due when every joined worker has reported. Each further row is due as soon as every worker has
        reported since the last row, before a worker's second report since then, or when a worker is lost. A row per
        report would change a single worker's loss at a time: a vertical line at each display.
        """
        numbers = _named(event.data, WORKER_NUMBERS)
        self.workers.setdefault(event.worker, Columns()).add(event.clock, event.time, at, numbers)
        if self._last.has_begun and self._last.is_new(event.worker):
            self._add_whole(at)
        if event.kind == "progress":
            numbers = {**self._last.report_of(event.worker), **numbers}
        self._last.note(event.worker, numbers, event.clock, event.time)
        if self._last.is_complete:
            self._add_whole(at)

    def _take_lost_worker(self, event: Event, at: int) -> None:
        if event.worker in self.workers:
            self.workers[event.worker].gap(event.clock, event.time, at)
        self._last.forget(event.worker, event.clock, event.time)
        if self._last.has_begun or self._last.is_complete:
            self._add_whole(at)

    def _add_whole(self, at: int) -> None:
        last = self._last
        # Workers report at slightly different clocks; the line of all workers must not go back.
        clock = max(last.clock, self.all_workers.clock[-1] if self.all_workers.clock else 0)
        self.all_workers.add(clock, last.time, at, last.take_row())

    def _take_epoch(self, event: Event, at: int) -> None:
        name = str(event.data.get("dataset", ""))
        self._dataset = self._dataset or name
        if name == self._dataset:
            self.epochs.add(event.clock, event.time, at, _named(event.data, ("epoch",)))

    def minibatches_per_epoch(self) -> float | None:
        """Return the advance of the clock in an epoch, None before the end of the first epoch."""
        if len(self.epochs) == 0:
            return None
        clock, _, epoch = self.epochs.line("epoch")
        if len(epoch) > 1 and epoch[-1] > epoch[0]:
            return float((clock[-1] - clock[0]) / (epoch[-1] - epoch[0])) or None
        return float(clock[-1] / (epoch[-1] + 1)) or None if len(epoch) else None


class _LastReports:
    """The last report of each present worker, with running sums: the cost per report does not grow with the workers.

    Attributes:
        clock: Greatest clock of the reports.
        time: Time of the newest report, seconds since the epoch.
        has_begun: Whether a row was taken.
    """

    def __init__(self) -> None:
        self.clock = 0
        self.time = 0.0
        self.has_begun = False
        self._reports: dict[int, Mapping[str, float]] = {}
        self._sums = dict.fromkeys(("loss", "images_per_s", *SECONDS), 0.0)
        self._n_lost_losses = 0
        self._expected: set[int] = set()
        self._new: set[int] = set()
        self._learning_rate: dict[str, float] = {}

    @property
    def has_news(self) -> bool:
        """Whether a report is in no row yet."""
        return bool(self._new)

    @property
    def is_complete(self) -> bool:
        """Return whether every expected worker has reported, and no row has any of the reports."""
        return bool(self._new) and len(self._new) == len(self._reports) and not self._expected

    def is_new(self, worker: int) -> bool:
        """Return whether the worker's last report is in no row yet."""
        return worker in self._new

    def report_of(self, worker: int) -> Mapping[str, float]:
        """Return the last report of a worker; empty before the first report."""
        return self._reports.get(worker, {})

    def expect(self, worker: int) -> None:
        """Delay the first row until this joined worker has reported."""
        if not self.has_begun and worker not in self._reports:
            self._expected.add(worker)

    def note(self, worker: int, numbers: Mapping[str, float], clock: int, time: float) -> None:
        """Replace a worker's last report."""
        self.forget(worker, clock, time)
        self._reports[worker] = numbers
        self._new.add(worker)
        self._add(numbers, 1)
        if "learning_rate" in numbers:
            self._learning_rate = {"learning_rate": numbers["learning_rate"]}

    def forget(self, worker: int, clock: int, time: float) -> None:
        """Drop a worker that was lost at a clock and time."""
        self.clock, self.time = max(self.clock, clock), time
        self._expected.discard(worker)
        self._new.discard(worker)
        self._add(self._reports.pop(worker, {}), -1)

    def take_row(self) -> dict[str, float]:
        """Return mean loss, sum of rates, shares of the time, and the rate of the last report; all count as taken."""
        self.has_begun = True
        self._expected.clear()
        self._new.clear()
        return {**self._together(), **self._learning_rate}

    def _add(self, numbers: Mapping[str, float], sign: int) -> None:
        for name in self._sums:
            value = numbers.get(name, 0.0)
            if -math.inf < value < math.inf:
                self._sums[name] += sign * value
        if not math.isfinite(numbers.get("loss", 0.0)):
            self._n_lost_losses += sign

    def _together(self) -> dict[str, float]:
        """Return mean loss, sum of rates, shares of the time; a loss that is not finite makes the mean NaN."""
        if not self._reports:
            return {"images_per_s": 0.0}
        mean = math.nan if self._n_lost_losses else self._sums["loss"] / len(self._reports)
        combined = {"images_per_s": max(0.0, self._sums["images_per_s"]), "loss": mean}
        spent = sum(self._sums[name] for name in SECONDS)
        if spent > 1e-6:
            combined |= {name: max(0.0, self._sums[name] / spent) for name in SECONDS}
        return combined


def net_outputs(event: Event) -> dict[str, float]:
    """Return the scalar outputs of an ``evaluation`` event by name; values that are not finite as NaN."""
    numbers = {name: number_of(value) for name, value in event.data.items() if name not in NOT_OUTPUTS}
    return {name: value for name, value in numbers.items() if value is not None}


def number_of(value: object) -> float | None:
    """Return a number of an event, which has NaN and infinities as text; None for other values.

    Example:
        >>> number_of(2), number_of("inf"), number_of("easgd"), number_of(True)
        (2.0, inf, None, None)
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return float(value) if value in ("nan", "inf", "-inf") else None


def _named(data: Mapping[str, object], names: tuple[str, ...]) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for name in names:
        value = data.get(name)
        if type(value) is float:  # nearly always
            numbers[name] = value
        elif (number := number_of(value)) is not None:
            numbers[name] = number
    return numbers
