"""Devices of a run's workers, from the run's events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from deepspark_ops.events import Event

MAX_NAMED: Final = 8
"""Most different devices in a text; a cluster may have hundreds."""


def devices_text(events: Iterable[Event]) -> str:
    """Return a line: each device with the workers, the most used first; empty if the events lack devices.

    For a restarted worker the last devices count.
    """
    last = {event.worker: str(event.data.get("text", "")) for event in events if event.kind == "worker_devices"}
    counted = Counter(last.values()).most_common()
    named = [text if times == 1 else f"{times} workers on {text}" for text, times in counted[:MAX_NAMED]]
    n_unnamed = sum(times for _, times in counted[MAX_NAMED:])
    return "; ".join([*named, *([f"{n_unnamed} more workers"] if n_unnamed else [])])
