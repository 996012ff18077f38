"""The counters of a worker in a center: 64-bit numbers with a single writer at a time, two cache lines a worker.

The sums of watched pushes are float64, all other counters are integers. SESSION is the number of the worker's present
process; the first server writes the number. After a worker was given up during an exchange, SESSION is ``NOBODY``. A
process that reads another number is fenced.
"""

from __future__ import annotations

import hashlib

COLUMNS = 16
BEGUN, ENDED = 0, 1
"""Number of the last begun exchange, and of the last ended exchange."""
APPLIED, APPLYING = 2, 3
"""Of the open exchange by socket: chunks applied so far, and the number of the chunk that is being applied, from 1."""
STALENESS, OVERLAPS, DUPLICATES, UNCERTAIN, MOVED_BYTES = range(4, 9)
"""Sums over all exchanges; see ``ExchangeStatus``."""
WATCH_BEGUN, WATCH_ENDED, WATCH_SUM, WATCH_SIZE = range(9, 13)
"""Pushes to the watched chunk: begun, ended, the sum of their sums and of the sums' absolute values."""
SESSION = 13
"""Number of the worker's present process."""
REFUSED = 14
"""Pushed chunks that were refused as nonsense; see ``push_check``."""
LIVE = 15
"""In the first row: number of workers that are there; 0 before the first worker."""
NOBODY = 0


def session_number(session: str) -> int:
    """Return the number of a process's session, 64 bits."""
    return int.from_bytes(hashlib.sha256(session.encode()).digest()[:8], "little")
