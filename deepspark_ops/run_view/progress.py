"""How a run stands: its clock, its workers, its last numbers and what happened. Drawn by terminal and page alike."""

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
    """What is last known of a worker.

    Attributes:
        state: ``joined``, ``training`` or ``lost``.
        clock: Of its last report.
        report: That report's numbers.
        exchange: Numbers of its last exchange summary.
        seen: Time of its last event.
        starts: How often it has joined.
        host: Name of the machine that it runs on; empty where its events do not tell.
        device: What it computes on, in words, likewise.
        reason: Why it was lost the last time; empty if it never was.
        ending: ``refused`` or ``failed`` where it ended the run, ``given_up`` where no start follows; else empty.
        images: Samples of all its reports.
        seconds: Time of all its reports, tests and waiting for the start left out.
    """

    state: Literal["joined", "training", "lost"] = "joined"
    clock: int = 0
    report: Mapping[str, Any] = field(default_factory=dict)
    exchange: Mapping[str, Any] = field(default_factory=dict)
    seen: float = 0.0
    starts: int = 0
    host: str = ""
    device: str = ""
    reason: str = ""
    ending: str = ""
    images: float = 0.0
    seconds: float = 0.0

    def number(self, name: str) -> float:
        """Return a number of its last report; 0 if that has none of the name."""
        return number_of(self.report.get(name)) or 0.0

    def take_report(self, clock: int, report: Mapping[str, Any]) -> None:
        """Take a report of its training."""
        self.state, self.clock, self.report = "training", clock, report
        seconds = sum(self.number(name) for name in SECONDS)
        self.images += self.number("images_per_s") * seconds
        self.seconds += seconds

    def shares(self) -> dict[str, float]:
        """Return what part of its time each of ``SECONDS`` took; empty before its first report."""
        spent = {name: self.number(name) for name in SECONDS}
        whole = sum(spent.values())
        return {name: seconds / whole for name, seconds in spent.items()} if whole > 0.0 else {}


@dataclass(frozen=True)
class Mark:
    """Something that happened at one moment, for the axis of a chart.

    Attributes:
        kind: What.
        clock: Minibatches over all workers.
        time: Seconds since the epoch.
        text: In words.
        at: Offset behind the event's line.
    """

    kind: MarkKind
    clock: int
    time: float
    text: str
    at: int


@dataclass(frozen=True)
class Note:
    """A line of text of the run, as ``Mark``."""

    clock: int
    time: float
    text: str
    is_warning: bool
    at: int


@dataclass(frozen=True)
class SnapshotNote:
    """A snapshot that was written.

    Attributes:
        iteration: Its clock.
        time: When, seconds since the epoch.
        weights: Path of the weights file.
        seconds: How long writing took; None if the run does not say.
    """

    iteration: int
    time: float
    weights: str
    seconds: float | None


class RunProgress:
    """Takes events in their order and knows how the run stands. Not thread-safe.

    Attributes:
        started: Data of the event with which the last start of the run began: net, strategy, n_workers, max_iter.
        starts: How often the run was started.
        ended: Data of the event with which it ended since; None while it goes on.
        workers: Worker -> what is known of it.
        server: Last report of the exchange as a whole.
        tests: Test net -> its last evaluation.
        clock: Farthest clock since the last start.
        first_time: Time of the run's first event; None before it.
        last_time: Time of its last one.
        marks: What to mark on an axis, oldest first.
        notes: The last texts, oldest first.
        snapshots: Iteration -> snapshot, of all starts.
        spark_ui: Address of the Spark application's own pages, as noted since the last start; empty without.
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
        """Clock at the end of the run; None before its start."""
        value = number_of(self.started.get("max_iter"))
        return None if value is None else int(value)

    @property
    def title(self) -> str:
        """The net, the strategy and the number of workers; empty before the start."""
        if not self.started:
            return ""
        workers = self.started.get("n_workers", "?")
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

    def images_per_s(self) -> float:
        """Return the present rate: the sum of the last reports of the workers that train."""
        return sum(worker.number("images_per_s") for worker in self.training())

    def mean_images_per_s(self) -> float | None:
        """Return images by time, summed over all workers of this start; None before the first report.

        The event of the run's end has the rate of the run; a run that was killed or was too short has none.
        """
        rates = [worker.images / worker.seconds for worker in self.workers.values() if worker.seconds > 0.0]
        ended = number_of((self.ended or {}).get("images_per_s"))
        return ended if ended is not None else sum(rates) if rates else None

    def mean_loss(self) -> float | None:
        """Return the mean of the workers' last losses, NaN if one of them is; None before the first."""
        losses = [worker.number("loss") for worker in self.workers.values() if "loss" in worker.report]
        return sum(losses) / len(losses) if losses else None

    def steps_per_s(self) -> float | None:
        """Return how fast the clock goes since the first report of this start; None while that is not known."""
        if self._begun is None or self._reached is None:
            return None
        seconds, steps = self._reached[0] - self._begun[0], self._reached[1] - self._begun[1]
        return steps / seconds if seconds > 0 and steps > 0 else None

    def seconds_left(self, max_iter: int | None = None) -> float | None:
        """Return the time that is left at the rate so far; None at the end and while it is not known."""
        max_iter = self.max_iter if max_iter is None else max_iter
        rate = self.steps_per_s()
        if max_iter is None or rate is None or self._reached is None or self.clock >= max_iter:
            return None
        return (max_iter - self._reached[1]) / rate

    def take(self, event: Event, at: int = 0) -> None:
        """Note one event, whose line ends at offset ``at``."""
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
        worker.seen = event.time
        match event.kind:
            case "worker_joined":
                worker.state = "joined"
                worker.starts += 1
                again = worker.starts > 1
                text = f"worker {event.worker} started again" if again else f"worker {event.worker} joined"
                self._mark("restarted" if again else "joined", event, at, text)
            case "worker_lost" if worker.state == "lost" and worker.ending == "given_up":
                pass  # the server has missed the worker's last process
            case "worker_lost":
                worker.state = "lost"
                worker.reason, worker.ending = str(event.data.get("reason", "")), str(event.data.get("ending", ""))
                what = "given up" if worker.ending == "given_up" else "lost"
                text = f"worker {event.worker} {what}: {worker.reason}".removesuffix(": ")
                self._mark("lost", event, at, text)
                self._note(event, at, text, is_warning=True)
            case "loss":
                worker.take_report(event.clock, event.data)
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
