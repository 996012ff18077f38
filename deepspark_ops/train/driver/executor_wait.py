"""Waiting until a cluster's executors are there, before a worker's share of their cores is told. Knows no Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

POLL_S: Final = 0.1
SETTLED_S: Final = 1.0
"""No executor has come for this long: those that start together are there."""
TELL_S: Final = 60.0
"""Without any executor for this long the user is told what is waited for."""


def await_executors(
    n_executors: Callable[[], int],
    is_over: threading.Event,
    tell: Callable[[float], None],
    *,
    now: Callable[[], float] = time.monotonic,
) -> bool:
    """Wait until some executors are there and no more of them come; return False if the run ends before.

    No task could begin before there is one, so that there is no limit: a busy cluster may take hours.

    Args:
        n_executors: Returns how many are there now.
        is_over: Set when the run ends.
        tell: Called once with the seconds waited when there has been none for ``TELL_S``.
        now: Seconds, for tests.
    """
    count, began, is_told = 0, now(), False
    since = began
    while not is_over.wait(POLL_S):
        found = n_executors()
        if found != count:
            count, since = found, now()
        if count and now() - since >= SETTLED_S:
            return True
        if not count and not is_told and now() - began >= TELL_S:
            is_told = True
            tell(TELL_S)
    return False
