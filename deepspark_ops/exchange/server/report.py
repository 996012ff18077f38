"""The server's regular report on all exchanges: rates, overlaps, staleness, lost updates."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.lost_updates import LostUpdates
from deepspark_ops.exchange.center.worker_counters import ENDED, MOVED_BYTES, OVERLAPS, REFUSED, STALENESS

REPORT_EVERY_S = 5.0


class ServerReport:
    """Counts exchanges since the last report. Thread-safe."""

    def __init__(self, center: Center, watch: LostUpdates, clock: Callable[[], float]) -> None:
        """Count from now on.

        Args:
            center: Center whose exchanges are counted.
            watch: Measures lost updates in it; used by this object only.
            clock: Seconds, never going back.
        """
        self._center = center
        self._watch = watch
        self._clock = clock
        self._lock = threading.Lock()
        self._counted_at = clock()
        self._counted = self._totals()
        self._refused = self.refused()

    @property
    def is_due(self) -> bool:
        """Whether the next report is due."""
        return self._clock() - self._counted_at >= REPORT_EVERY_S

    def refused(self) -> list[int]:
        """Return the refused pushes of each worker, at all servers."""
        counts: list[int] = self._center.all_counters[..., REFUSED].sum(axis=0).tolist()
        return counts

    def new_refusals(self) -> list[tuple[int, int]]:
        """Return (worker, count of all refusals) of workers with refused pushes since the last call."""
        with self._lock:
            previous, self._refused = self._refused, self.refused()
            return [(i, count) for i, count in enumerate(self._refused) if count > previous[i]]

    def watch(self) -> None:
        """Measure lost updates a step further, unless another thread is doing so."""
        if self._lock.acquire(blocking=False):
            try:
                self._watch.step()
            finally:
                self._lock.release()

    def next(self) -> dict[str, Any] | None:
        """Return the data of a ``server`` event on the time since the last call; None if no worker exchanged."""
        with self._lock:
            now, totals = self._clock(), self._totals()
            seconds, previous = now - self._counted_at, self._counted
            exchanges, moved_bytes, overlaps, staleness = (total - b for total, b in zip(totals, previous, strict=True))
            self._counted_at, self._counted = now, totals
            if exchanges <= 0 or seconds <= 0.0:
                return None
            finding = self._watch.finding()
            self._watch.step()
        data: dict[str, Any] = {
            "exchanges": exchanges,
            "seconds": round(seconds, 3),
            "exchanges_per_s": round(exchanges / seconds, 2),
            "bytes_per_s": round(moved_bytes / seconds),
            "moved_bytes": totals[1],  # since the run was started: the sum of the rates is not exact
            "overlaps": overlaps,
            "staleness": round(staleness / exchanges, 3),
        }
        if refused := sum(self.refused()):
            data["refused_pushes"] = refused  # since the run was started
        if finding is not None:
            data |= {
                "lost_updates": round(finding.lost_updates, 6),
                "deviation": finding.deviation,
                "rounding": finding.rounding,
                "watched_chunk": finding.position,
                "watched_pushes": finding.pushes,
            }
        return data

    def _totals(self) -> tuple[int, ...]:
        counters = self._center.counters
        ended, overlaps, staleness = (int(counters[:, column].sum()) for column in (ENDED, OVERLAPS, STALENESS))
        return ended, int(self._center.all_counters[..., MOVED_BYTES].sum()), overlaps, staleness
