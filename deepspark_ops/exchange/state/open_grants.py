"""The grants of workers, by id and by worker: with a thousand workers a search through all grants would be slow."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from deepspark_ops.exchange.state.grants import Grant


@dataclass
class OpenGrant:
    """A grant of a worker, or an expired grant whose steps were not granted again.

    Attributes:
        grant: The grant.
        worker: Who holds it.
        since: When it was given, or when the worker's grant before was acknowledged, seconds.
    """

    grant: Grant
    worker: int
    since: float


class OpenGrants:
    """Grants in the order of their issue. Not thread-safe."""

    def __init__(self) -> None:
        """Start without grants."""
        self._by_id: dict[int, OpenGrant] = {}
        self._by_worker: dict[int, dict[int, OpenGrant]] = {}

    def __iter__(self) -> Iterator[OpenGrant]:
        """Yield all grants."""
        return iter(self._by_id.values())

    def get(self, grant_id: int) -> OpenGrant | None:
        """Return the grant of an id, or None."""
        return self._by_id.get(grant_id)

    def of(self, worker: int) -> Collection[OpenGrant]:
        """Return the grants of a worker."""
        return tuple(self._by_worker.get(worker, {}).values())

    def add(self, entry: OpenGrant) -> None:
        """Add a grant."""
        self._by_id[entry.grant.id] = entry
        self._by_worker.setdefault(entry.worker, {})[entry.grant.id] = entry

    def remove(self, entry: OpenGrant) -> None:
        """Remove a grant."""
        del self._by_id[entry.grant.id]
        of_worker = self._by_worker[entry.worker]
        del of_worker[entry.grant.id]
        if not of_worker:
            del self._by_worker[entry.worker]
