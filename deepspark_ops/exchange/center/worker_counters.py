"""The counters of a worker in a center: 64-bit numbers with one writer at a time, two cache lines a worker.

The sums of watched pushes are float64, everything else counts. SESSION says whose exchanges count: the number of the
process that is the worker, which the server that knows the sessions writes; ``NOBODY`` after a worker was given up in
the middle of an exchange. A process that finds another number there is fenced.
"""

from __future__ import annotations

import hashlib

COLUMNS = 16
BEGUN, ENDED = 0, 1
"""Number of the last exchange that was begun, and of the last that was ended."""
APPLIED, APPLYING = 2, 3
"""Of the open exchange by socket: chunks applied so far, and the number of the chunk that is being applied, from 1."""
STALENESS, OVERLAPS, DUPLICATES, UNCERTAIN, MOVED_BYTES = range(4, 9)
"""Sums over all exchanges; see ``ExchangeStatus``."""
WATCH_BEGUN, WATCH_ENDED, WATCH_SUM, WATCH_SIZE = range(9, 13)
"""Pushes to the watched chunk: begun, ended, the sum of their sums and of the sums' absolute values."""
SESSION = 13
"""Number of the process that is the worker."""
REFUSED = 14
"""Pushed chunks that were refused as nonsense; see ``push_check``."""
NOBODY = 0


def session_number(session: str) -> int:
    """Return the number of a process's session, 64 bits."""
    return int.from_bytes(hashlib.sha256(session.encode()).digest()[:8], "little")
