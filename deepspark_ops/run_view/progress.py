"""Progress of a run: clock, workers, last numbers and events; shown by terminal and page."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from deepspark_ops.events import DRIVER, Event
from deepspark_ops.run_view.series import SECONDS, number_of

MARKS_KEPT = 200
NOTES_KEPT = 50
MarkKind = Literal["started", "joined", "restarted", "lost", "server", "snapshot"]


@dataclass
class WorkerStanding:
    """Last known state of a worker.

    Attributes:
        state: ``joined``, ``training`` or ``lost``.
        clock: Clock of the last report.
        report: Numbers of the last report.
        exchange: Numbers of the last exchange summary.
        last_event_time: Time of the last event.
        starts: Number of joins.
        host: Name of the worker's machine; empty if the events lack the name.
        device: Device of the worker, in words; empty if the events lack the device.
        reason: Reason of the last loss; empty for a worker that was never lost.
        ending: ``refused`` or ``failed`` if the worker ended the run, ``given_up`` without a further start; else empty.
        images: Samples of all reports.
        seconds: Time of all reports, without tests and the wait for the start.
    """

    state: Literal["joined", "training", "lost"] = "joined"
    clock: int = 0
    report: Mapping[str, Any] = field(default_factory=dict)
    exchange: Mapping[str, Any] = field(default_factory=dict)
    last_event_time: float = 0.0
    starts: int = 0
    host: str = ""
    device: str = ""
    reason: str = ""
    ending: str = ""
    images: float = 0.0
    seconds: float = 0.0

    def number(self, name: str) -> float:
        """Return a number of the last report; 0 if the report lacks the number."""
        return number_of(self.report.get(name)) or 0.0

    def take_report(self, clock: int, report: Mapping[str, Any]) -> None:
        """Add a report of the worker's training."""
        self.state, self.clock, self.report = "training", clock, report
        seconds = sum(self.number(name) for name in SECONDS)
        self.images += self.number("images_per_s") * seconds
        self.seconds += seconds

    def shares(self) -> dict[str, float]:
        """Return the share of each of ``SECONDS`` in the worker's time; empty before the first report."""
        spent = {name: self.number(name) for name in SECONDS}
        total = sum(spent.values())
        return {name: seconds / total for name, seconds in spent.items()} if total > 0.0 else {}


@dataclass(frozen=True)
class Mark:
    """An event at one moment, for the axis of a chart.

    Attributes:
        kind: Kind of event.
        clock: Minibatches over all workers.
        time: Seconds since the epoch.
        text: Description in words.
        at: Offset after the event's line.
    """

    kind: MarkKind
    clock: int
    time: float
    text: str
    at: int


@dataclass(frozen=True)
class Note:
    """A line of text of the run; fields as in ``Mark``."""

    clock: int
    time: float
    text: str
    is_warning: bool
    at: int


@dataclass(frozen=True)
class SnapshotNote:
    """A written snapshot.

    Attributes:
        iteration: Clock of the snapshot.
        time: Seconds since the epoch.
        weights: Path of the weights file.
        seconds: Duration of writing; None if the event lacks the duration.
    """

    iteration: int
    time: float
    weights: str
    seconds: float | None


class RunProgress:
    """Progress of a run, from events in their order. Not thread-safe.

    Attributes:
        started: Data of the event of the last start: net, strategy, n_workers, max_iter.
        starts: Number of starts of the run.
        ended: Data of the event of the end since the last start; None while the run goes on.
        workers: Worker -> last known state.
        server: Last report of the exchange as a whole.
        tests: Test net -> last evaluation.
        clock: Farthest clock since the last start.
        first_time: Time of the run's first event; None without events.
        last_time: Time of the run's last event.
        marks: Marks for an axis, oldest first.
        notes: The last texts, oldest first.
        snapshots: Iteration -> snapshot, of all starts.
        spark_ui: Address of Spark's web UI, from an event since the last start; empty without such an event.
    """

    def __init__(self) -> None:
        """Start with no workers."""
        self.started: Mapping[str, Any] = {}
        self.starts = 0
        self.ended: Mapping[str, Any] | None = None
        self.workers: dict[int, WorkerStanding] = {}
        self.server: Mapping[str, Any] = {}
        self.tests: dict[int, Event] = {}
        self.clock = 0
        self.first_time: float | None = None
        self.last_time = 0.0
        self.started_time = 0.0
        self.marks: deque[Mark] = deque(maxlen=MARKS_KEPT)
        self.notes: deque[Note] = deque(maxlen=NOTES_KEPT)
        self.snapshots: dict[int, SnapshotNote] = {}
        self.spark_ui = ""
        self._begun: tuple[float, int] | None = None
        self._reached: tuple[float, int] | None = None

    @property
    def max_iter(self) -> int | None:
        """Clock at the end of the run; None before the start."""
        value = number_of(self.started.get("max_iter"))
        return None if value is None else int(value)

    @property
    def title(self) -> str:
        """The net, the strategy and the number of workers; empty before the start."""
        if not self.started:
            return ""
        workers, fewest = self.started.get("n_workers", "?"), self.started.get("fewest_workers")
        workers = f"{fewest} to {workers}" if fewest else workers
        return f"{self.started.get('net') or 'net'}: {self.started.get('strategy', '')}, {workers} workers"

    @property
    def has_trained(self) -> bool:
        """Whether a worker has reported since the last start."""
        return self._reached is not None

    @property
    def newest_test(self) -> Event | None:
        """The last evaluation of any test net."""
        return max(self.tests.values(), key=lambda event: event.time, default=None)

    def training(self) -> list[WorkerStanding]:
        """Return the workers that have reported and are not lost."""
        return [worker for worker in self.workers.values() if worker.state == "training"]

    def state_of(self, worker: WorkerStanding) -> str:
        """Return the state of a worker: after the end of the training ``lost`` or ``ended``."""
        return worker.state if self.ended is None or worker.state == "lost" else "ended"

    def images_per_s(self) -> float:
        """Return the present rate: the sum of the last reports of training workers."""
        return sum(worker.number("images_per_s") for worker in self.training())

    def mean_images_per_s(self) -> float | None:
        """Return images by time, summed over all workers of this start; None before the first report.

        The event of the run's end has the rate of the run; a killed or very short run has no rate.
        """
        rates = [worker.images / worker.seconds for worker in self.workers.values() if worker.seconds > 0.0]
        ended = number_of((self.ended or {}).get("images_per_s"))
        return ended if ended is not None else sum(rates) if rates else None

    def mean_loss(self) -> float | None:
        """Return the mean of the workers' last losses, NaN if a loss is NaN; None before the first report."""
        losses = [worker.number("loss") for worker in self.workers.values() if "loss" in worker.report]
        return sum(losses) / len(losses) if losses else None

    def steps_per_s(self) -> float | None:
        """Return the rate of the clock since the first report of this start; None while the rate is unknown."""
        if self._begun is None or self._reached is None:
            return None
        seconds, steps = self._reached[0] - self._begun[0], self._reached[1] - self._begun[1]
        return steps / seconds if seconds > 0 and steps > 0 else None

    def seconds_left(self, max_iter: int | None = None) -> float | None:
        """Return the remaining time at the mean rate so far; None at the end and while the rate is unknown."""
        max_iter = self.max_iter if max_iter is None else max_iter
        rate = self.steps_per_s()
        if max_iter is None or rate is None or self._reached is None or self.clock >= max_iter:
            return None
        return (max_iter - self._reached[1]) / rate

    def take(self, event: Event, at: int = 0) -> None:
        """Process an event, whose line ends at offset ``at``."""
        self.first_time = event.time if self.first_time is None else self.first_time
        self.last_time = max(self.last_time, event.time)
        is_start = event.kind == "stage" and event.data.get("status") == "started"
        self.clock = event.clock if is_start else max(self.clock, event.clock)
        if event.worker != DRIVER:
            self._take_of_worker(event, at)
        match event.kind:
            case "stage":
                self._take_stage(event, at)
            case "server":
                self.server = event.data
            case "evaluation":
                self.tests[int(event.data.get("test_net", 0))] = event
            case "snapshot":
                weights = str(event.data.get("weights", ""))
                seconds = number_of(event.data.get("seconds"))
                self.snapshots[event.clock] = SnapshotNote(event.clock, event.time, weights, seconds)
                self._mark("snapshot", event, at, f"snapshot {weights.rpartition('/')[2]}")
            case "note" if "server_start" in event.data:
                self._mark("server", event, at, str(event.data.get("text", "")))
                self._note(event, at, str(event.data.get("text", "")), is_warning=True)
            case "note":
                self.spark_ui = str(event.data.get("spark_ui", self.spark_ui))
                is_warning = event.data.get("warning") is True
                self._note(event, at, str(event.data.get("text", "")), is_warning=is_warning)

    def _take_of_worker(self, event: Event, at: int) -> None:
        if event.kind == "epoch":
            return
        worker = self.workers.setdefault(event.worker, WorkerStanding())
        worker.last_event_time = event.time
        match event.kind:
            case "worker_joined":
                worker.state = "joined"
                worker.starts += 1
                is_restart = worker.starts > 1
                text = f"worker {event.worker} started again" if is_restart else f"worker {event.worker} joined"
                self._mark("restarted" if is_restart else "joined", event, at, text)
            case "worker_lost" if worker.state == "lost" and worker.ending == "given_up":
                pass  # the driver gave the worker up before the server missed its last process
            case "worker_lost":
                worker.state = "lost"
                worker.reason, worker.ending = str(event.data.get("reason", "")), str(event.data.get("ending", ""))
                ending_word = "given up" if worker.ending == "given_up" else "lost"
                text = f"worker {event.worker} {ending_word}: {worker.reason}".removesuffix(": ")
                self._mark("lost", event, at, text)
                self._note(event, at, text, is_warning=True)
            case "loss":
                worker.take_report(event.clock, event.data)
                self._reached = (event.time, self.clock)
                self._begun = self._begun or self._reached
            case "progress":
                worker.state, worker.clock, worker.report = "training", event.clock, {**worker.report, **event.data}
                self._reached = (event.time, self.clock)
                self._begun = self._begun or self._reached
            case "exchange":
                worker.exchange = event.data
            case "worker_devices":
                worker.host, worker.device = str(event.data.get("host", "")), str(event.data.get("text", ""))

    def _take_stage(self, event: Event, at: int) -> None:
        if event.data.get("status") != "started":
            self.ended = event.data
            return
        self.started, self.ended, self.spark_ui = event.data, None, ""
        self.started_time = event.time
        self.starts += 1
        self.workers, self.server, self.tests = {}, {}, {}
        self._begun = self._reached = None
        if self.starts > 1:
            text = f"started again from clock {event.clock:,}"
            self._mark("started", event, at, text)
            self._note(event, at, text)

    def _mark(self, kind: MarkKind, event: Event, at: int, text: str) -> None:
        clock = self.clock if kind == "server" else event.clock  # earlier releases wrote 0 there
        self.marks.append(Mark(kind, clock, event.time, text, at))

    def _note(self, event: Event, at: int, text: str, *, is_warning: bool = False) -> None:
        self.notes.append(Note(event.clock, event.time, text, is_warning, at))
