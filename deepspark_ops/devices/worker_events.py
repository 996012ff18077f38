"""What a run's workers computed on, as its events tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from deepspark_ops.events import Event

MAX_NAMED: Final = 8
"""Different devices that a text names; a cluster may have hundreds."""


def devices_text(events: Iterable[Event]) -> str:
    """Return one line: each device with the workers on it, the most used first; empty for a run that does not tell.

    Of a worker that was started again its last devices count.
    """
    last = {event.worker: str(event.data.get("text", "")) for event in events if event.kind == "worker_devices"}
    counted = Counter(last.values()).most_common()
    named = [text if times == 1 else f"{times} workers on {text}" for text, times in counted[:MAX_NAMED]]
    others = sum(times for _, times in counted[MAX_NAMED:])
    return "; ".join([*named, *([f"{others} more workers"] if others else [])])
