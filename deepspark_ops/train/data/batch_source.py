"""The source of a worker's batches, as the worker loop sees the source. No framework."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy.typing as npt

Feeds = Mapping[str, npt.NDArray[Any]]
"""Data blob -> array of shape (n_batches, *blob shape): one entry per forward pass."""


class BatchSource(Protocol):
    """The worker's data, already transformed; used by a single thread."""

    def take(self, max_steps: int) -> tuple[Feeds, int]:
        """Return batches for n steps, 1 <= n <= max_steps, and n; waits for data. Valid until the next call.

        n is 0 once the server gives out no more data, since every step of the run is done.
        """

    def test_batches(self, net: int, ordinal: int) -> Iterator[Feeds]:
        """Yield the test_iter batches of test ``ordinal`` (from 0) of a test net: blob -> array of full shape.

        Each batch has new arrays. Another thread may read the batches while the source's own thread waits.
        """

    def leases(self) -> Mapping[str, Mapping[str, int]]:
        """Return the used samples of each open lease, for ``WorkerLink.send_state``: dataset -> id -> count."""
