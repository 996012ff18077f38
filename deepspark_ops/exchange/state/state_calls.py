"""A worker's calls that change the books: which there are, and who makes them. Each is answered once per number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from deepspark_ops.exchange.state.grants import Grant, GrantAnswer, answer_from_json
from deepspark_ops.exchange.state.leases import Lease

ASKABLE = {
    "request_grant": (int,),
    "request_next": (int, int),
    "acknowledge": (int,),
    "lease": (str,),
    "return_lease": (str, int, int | None),
}
"""Every call and its arguments, see ``Coordinator.answer``."""
GRANT_CALLS = ("request_grant", "request_next")
TIMED_CALLS = (*GRANT_CALLS, "acknowledge")
"""Calls whose time the books note."""


class AsksBooks(ABC):
    """The part of a ``WorkerLink`` that talks to the books, by whatever way ``_ask`` takes."""

    @abstractmethod
    def _ask(self, call: str, *args: Any) -> Any:
        """Make one call of ``ASKABLE``; returns plain JSON values."""

    def request_grant(self, want: int, *, held: Grant | None = None) -> GrantAnswer:
        """See ``WorkerLink``."""
        if held is None:
            return answer_from_json(self._ask("request_grant", want))
        return answer_from_json(self._ask("request_next", want, held.id))

    def acknowledge(self, grant: Grant) -> bool:
        """See ``WorkerLink``."""
        return bool(self._ask("acknowledge", grant.id))

    def lease(self, dataset: str = "train") -> Lease | None:
        """See ``WorkerLink``."""
        plain = self._ask("lease", dataset)
        return None if plain is None else Lease(**plain)

    def return_lease(self, lease: Lease, consumed: int | None = None) -> None:
        """See ``WorkerLink``."""
        self._ask("return_lease", lease.dataset, lease.id, consumed)
