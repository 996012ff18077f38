"""Events of a run, one JSON object a line, versioned: page, TensorBoard and report are drawn from these alone."""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from pydantic_core import from_json

_LOG = logging.getLogger(__name__)
EVENT_VERSION = 1
EventKind = Literal[
    "stage",
    "loss",
    "debug",
    "exchange",
    "evaluation",
    "snapshot",
    "worker_joined",
    "worker_devices",
    "worker_lost",
    "epoch",
    "note",
    "server",
]
MAX_EVENT_BYTES = 1 << 20
"""A longer line is refused by the exchange; whoever makes events sends summaries and writes files."""
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
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return value


def make_event(kind: EventKind, *, clock: int = 0, worker: int = DRIVER, **data: Any) -> Event:
    """Return an event stamped with the present time."""
    return Event(kind, clock, worker, data, time.time())


_HEAD = ("v", "time", "kind", "clock", "worker")
_KINDS = frozenset(get_args(EventKind))


def parse_event(line: str | bytes) -> Event | None:
    """Return the event of one line; None for a torn or damaged line, and for one of another version."""
    try:
        fields = from_json(line)  # three times as fast as json.loads: a page reads 100,000 lines at once
    except (ValueError, TypeError):  # the latter for text that is no Unicode
        return None
    if not isinstance(fields, dict):
        return None
    version, time_s, kind, clock, worker = (fields.pop(key, None) for key in _HEAD)
    is_event = version == EVENT_VERSION and isinstance(kind, str) and kind in _KINDS
    if not is_event or not isinstance(clock, int) or not isinstance(worker, int) or not isinstance(time_s, int | float):
        return None
    return Event(cast("EventKind", kind), clock, worker, fields, float(time_s))


def append_event(path: Path, event: Event) -> None:
    """Append one line in one write, so that several processes may append to the same file.

    Raises:
        OSError: The file cannot be written, or the disk took a part of the line only.
    """
    line = (event.to_json() + "\n").encode()
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        if os.write(handle, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(handle)


def read_events(path: Path) -> Iterator[Event]:
    """Yield the events of a file, oldest first; a missing file has none.

    A line that is none is left out and logged with its number, unless it is the last one, which may still be written.
    """
    if not path.exists():
        return
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            event = parse_event(line)
            if event is not None:
                yield event
            elif line.endswith(b"\n"):
                _LOG.warning("%s:%d: not an event of version %d; the line is left out", path, number, EVENT_VERSION)


def format_event(event: Event) -> str:
    """Return the log line of an event, e.g. ``worker 1 clock=200 loss=0.31 learning_rate=0.01 images_per_s=4800``.

    A ``debug`` event has one line per value, in Caffe's words; ``worker_devices`` reads ``worker 1: GPU 0, 2 threads``.
    """
    who = "driver" if event.worker == DRIVER else f"worker {event.worker}"
    if event.kind == "debug":
        test = f" test_net={event.data['test_net']}" if "test_net" in event.data else ""
        return "\n".join(f"{who} debug clock={event.clock}{test}{line}" for line in event.data.get("lines", ()))
    if event.kind == "worker_devices":
        return f"{who}: {event.data.get('text', '')}"
    pairs = " ".join(f"{key}={_short(value)}" for key, value in event.data.items())
    return f"{who} {event.kind} clock={event.clock} {pairs}".rstrip()


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
