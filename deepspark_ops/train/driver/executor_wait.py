"""Waiting until a cluster's executors are there, before a worker's share of their cores is told. Knows no Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

POLL_S: Final = 0.1
SETTLED_S: Final = 1.0
"""No executor has come for this long: those that start together are there."""


def await_executors(
    n_executors: Callable[[], int],
    is_over: threading.Event,
    *,
    now: Callable[[], float] = time.monotonic,
) -> bool:
    """Wait until some executors are there and no more of them come; return False if the run ends before.

    How long a run waits for its first executor is for ``worker_slots`` to say, which ends it by ``is_over``.

    Args:
        n_executors: Returns how many are there now.
        is_over: Set when the run ends.
        now: Seconds, for tests.
    """
    count, since = 0, now()
    while not is_over.wait(POLL_S):
        found = n_executors()
        if found != count:
            count, since = found, now()
        if count and now() - since >= SETTLED_S:
            return True
    return False
