"""Events of a run, a JSON object per line, versioned: the only source of pages, TensorBoard files and reports."""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast, get_args

from caffe_import.file_access.regular_file import open_regular

_LOG = logging.getLogger(__name__)
EVENT_VERSION = 1
EventKind = Literal[
    "stage",
    "loss",
    "progress",
    "debug",
    "exchange",
    "evaluation",
    "snapshot",
    "worker_joined",
    "worker_devices",
    "worker_lost",
    "epoch",
    "fetch",
    "host",
    "watch",
    "note",
    "server",
]
MAX_EVENT_BYTES = 1 << 20
"""The exchange refuses longer lines; producers of events send summaries and write files."""
DRIVER = -1
"""``worker`` of an event without a worker."""
NOT_OUTPUTS = ("test_net", "n_samples", "seconds")
"""Fields of an ``evaluation`` event besides the outputs of the test net."""


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
        """Return a line without newline; NaN and infinities become strings, for any JSON reader."""
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


_KINDS = frozenset(get_args(EventKind))
_END_OF_TIME_S = 1e12


@cache
def _json_reader() -> Callable[[str | bytes], Any]:
    """Return a JSON reader three times as fast as json.loads: a page reads 100,000 lines at once.

    Writers of events, such as the exchange server, do not wait for the import.
    """
    from pydantic_core import from_json

    return from_json


def parse_event(line: str | bytes) -> Event | None:
    """Return the event of a line; None for an incomplete or damaged line, and for another version."""
    try:
        fields = _json_reader()(line)
    except (ValueError, TypeError):  # the latter for text that is no Unicode
        return None
    if not isinstance(fields, dict):
        return None
    take = fields.pop
    version, time_s, kind = take("v", None), take("time", None), take("kind", None)
    clock, worker = take("clock", None), take("worker", None)
    is_event = version == EVENT_VERSION and isinstance(kind, str) and kind in _KINDS
    if not is_event or not isinstance(clock, int) or not isinstance(worker, int):
        return None
    if not isinstance(time_s, int | float) or not abs(time_s) < _END_OF_TIME_S:  # an infinity is no JSON
        return None
    return Event(cast("EventKind", kind), clock, worker, fields, float(time_s))


def append_event(path: Path, event: Event) -> None:
    """Append a line in a single write, so several processes may append to the same file.

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
    """Yield the events of a file, oldest first; a missing file has no events.

    An invalid line is logged with the number and skipped; an incomplete last line is skipped without a log line.
    """
    if not path.exists():
        return
    with open_regular(path) as lines:
        for number, line in enumerate(lines, start=1):
            event = parse_event(line)
            if event is not None:
                yield event
            elif line.endswith(b"\n"):
                _LOG.warning("%s:%d: not an event of version %d; the line is left out", path, number, EVENT_VERSION)


LOG_COLUMNS = 120
"""Maximum width of a worker's line in a log."""
_LOSS_WORDS = {
    "loss": "loss={:.6g}",
    "learning_rate": "lr={:.4g}",
    "images_per_s": "images/s={:.0f}",
    "compute_s": "comp={:.2f}s",
    "data_s": "data={:.2f}s",
    "exchange_s": "exch={:.2f}s",
    "staleness": "stale={:.3g}",
    "distance": "dist={:.3g}",
}
_UNSAID = ("memory_bytes", "first_call")
"""Values of a report that only programs and pages read."""
_SERVER_WORDS = {
    "exchanges_per_s": "exchanges/s={:.4g}",
    "bytes_per_s": "bytes/s={:.3g}",
    "staleness": "staleness={:.3g}",
    "lost_updates": "lost_updates={:.3g}",
    "overlaps": "overlaps={}",
    "refused_pushes": "refused_pushes={}",
}
"""Fields of a report's line, the most important first."""


def format_event(event: Event, *, max_iter: int | None = None) -> str:
    """Return the log line of an event, e.g. ``worker 1 loss clock=200/1000 loss=0.31 lr=0.01 images/s=4800``.

    The line of a worker's report has at most ``LOG_COLUMNS`` characters, without the least important fields. A
    ``debug`` event has a line per value, in Caffe's words; ``worker_devices`` reads ``worker 1: GPU 0, 2 threads``.
    """
    sender = "driver" if event.worker == DRIVER else f"worker {event.worker}"
    if event.kind == "debug":
        test = f" test_net={event.data['test_net']}" if "test_net" in event.data else ""
        return "\n".join(f"{sender} debug clock={event.clock}{test}{line}" for line in event.data.get("lines", ()))
    if event.kind == "worker_devices":
        return f"{sender}: {event.data.get('text', '')}"
    clock = f"{event.clock}" if max_iter is None else f"{event.clock}/{max_iter}"
    if event.kind == "note" and "text" in event.data:
        return f"{sender} clock={event.clock}: {event.data['text']}"
    if event.kind == "loss":
        return _within(LOG_COLUMNS, f"{sender} loss clock={clock}", _worded(event.data, _LOSS_WORDS, has_rest=True))
    if event.kind == "server":
        return " ".join([f"{sender} server clock={clock}", *_worded(event.data, _SERVER_WORDS, has_rest=False)])
    pairs = " ".join(f"{key}={_short(value)}" for key, value in event.data.items())
    return f"{sender} {event.kind} clock={event.clock} {pairs}".rstrip()


def _worded(data: Mapping[str, Any], words: Mapping[str, str], *, has_rest: bool) -> list[str]:
    """Return the numbers in the words' order, then the other fields; text such as ``nan`` follows the name."""
    fields = [
        word.format(data[key]) if isinstance(data[key], int | float) else f"{word.partition('=')[0]}={data[key]}"
        for key, word in words.items()
        if key in data
    ]
    further_keys = (key for key in data if has_rest and key not in words and key not in _UNSAID)
    return fields + [f"{key}={_short(data[key])}" for key in further_keys]


def _within(columns: int, start: str, parts: Sequence[str]) -> str:
    line = start
    for part in parts:
        if len(line) + 1 + len(part) > columns:
            break
        line += f" {part}"
    return line


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{key}:{_short(part)}" for key, part in value.items())
    return f"{value:.6g}" if isinstance(value, float) else str(value)
