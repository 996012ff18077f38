"""Columns of a worker's slot in a center: 64-bit numbers with one writer at a time, two cache lines a worker.

The sums of watched pushes are float64, everything else counts. SESSION says whose exchanges count: the number of the
process that is the worker, which the server that knows the sessions writes; ``NOBODY`` after a worker was given up in
the middle of an exchange. A process that finds another number there is fenced.
"""

from __future__ import annotations

import hashlib

COLUMNS = 16
BEGUN, ENDED, PLACE, MARK, STALENESS, OVERLAPS, DUPLICATES, UNCERTAIN, MOVED_BYTES = range(9)
WATCH_BEGUN, WATCH_ENDED, WATCH_SUM, WATCH_SIZE, SESSION = range(9, 14)
NOBODY = 0


def session_number(session: str) -> int:
    """Return the number of a process's session, 64 bits."""
    return int.from_bytes(hashlib.sha256(session.encode()).digest()[:8], "little")
