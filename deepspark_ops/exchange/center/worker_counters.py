"""Columns of a worker's slot in a center: 64-bit numbers with one writer at a time, two cache lines a worker.

The sums of watched pushes are float64, everything else counts.
"""

from __future__ import annotations

COLUMNS = 16
BEGUN, ENDED, PLACE, MARK, STALENESS, OVERLAPS, DUPLICATES, UNCERTAIN, MOVED_BYTES = range(9)
WATCH_BEGUN, WATCH_ENDED, WATCH_SUM, WATCH_SIZE, SESSION = range(9, 14)
