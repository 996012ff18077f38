"""Events of a run, one JSON object a line, versioned: page, TensorBoard and report are drawn from these alone."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

EVENT_VERSION = 1
EventKind = Literal[
    "stage",
    "loss",
    "debug",
    "exchange",
    "evaluation",
    "snapshot",
    "worker_joined",
    "worker_lost",
    "epoch",
    "note",
    "server",
]
DRIVER = -1
"""``worker`` of an event that no worker caused."""


@dataclass(frozen=True)
class Event:
    """One event.

    Attributes:
        kind: What happened.
        clock: Minibatches granted over all workers when it happened.
        worker: Worker id, or ``DRIVER``.
        data: Numbers with units in their names (``loss``, ``images_per_s``, ``compute_s``, ...) and short texts.
        time: Seconds since the epoch, UTC.
    """

    kind: EventKind
    clock: int
    worker: int
    data: Mapping[str, Any]
    time: float

    def to_json(self) -> str:
        """Return one line without its newline; NaN and infinities become strings, so that any JSON reader copes."""
        plain = {key: _plain(value) for key, value in self.data.items()}
        head = {"v": EVENT_VERSION, "time": round(self.time, 3), "kind": self.kind, "clock": self.clock}
        return json.dumps({**head, "worker": self.worker, **plain}, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value


def make_event(kind: EventKind, *, clock: int = 0, worker: int = DRIVER, **data: Any) -> Event:
    """Return an event stamped with the present time."""
    return Event(kind, clock, worker, data, time.time())


def parse_event(line: str) -> Event | None:
    """Return the event of one line; None for a torn last line or a line of a later version."""
    try:
        fields = json.loads(line)
    except json.JSONDecodeError:
        return None
    if (
        not isinstance(fields, dict)
        or fields.get("v") != EVENT_VERSION
        or fields.get("kind") not in get_args(EventKind)
    ):
        return None
    head = {"v", "time", "kind", "clock", "worker"}
    data = {key: value for key, value in fields.items() if key not in head}
    return Event(fields["kind"], int(fields["clock"]), int(fields["worker"]), data, float(fields["time"]))


def append_event(path: Path, event: Event) -> None:
    """Append one line in one write, so that several processes may append to the same file."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, (event.to_json() + "\n").encode())
    finally:
        os.close(handle)


def read_events(path: Path) -> Iterator[Event]:
    """Yield the events of a file, oldest first; a missing file has none."""
    if not path.exists():
        return
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            event = parse_event(line)
            if event is not None:
                yield event


def format_event(event: Event) -> str:
    """Return the log line of an event, e.g. ``worker 1 clock=200 loss=0.31 learning_rate=0.01 images_per_s=4800``.

    A ``debug`` event has one line per value, in Caffe's words.
    """
    who = "driver" if event.worker == DRIVER else f"worker {event.worker}"
    if event.kind == "debug":
        test = f" test_net={event.data['test_net']}" if "test_net" in event.data else ""
        return "\n".join(f"{who} debug clock={event.clock}{test}{line}" for line in event.data.get("lines", ()))
    pairs = " ".join(f"{key}={_short(value)}" for key, value in event.data.items())
    return f"{who} {event.kind} clock={event.clock} {pairs}".rstrip()


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
