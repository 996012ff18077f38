"""Everything about a run that must outlive the server process, and the journal that makes it so."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepspark_ops.errors import ProtocolError
from deepspark_ops.exchange.scratch_file import write_scratch
from deepspark_ops.exchange.state.clock import GrantLedger
from deepspark_ops.exchange.state.grants import answer_to_json
from deepspark_ops.exchange.state.leases import LeaseBook

if TYPE_CHECKING:
    from deepspark_ops.exchange.settings import ExchangeSettings

COMPACT_BYTES = 4 << 20
"""A journal longer than this is replaced by the state it amounts to."""


class RunBooks:
    """Grants, leases and worker processes of one run: a state machine whose every change is a named call.

    Deterministic: the same calls with the same times give the same books, which is what the journal relies on.
    Not thread-safe.
    """

    def __init__(self, settings: ExchangeSettings) -> None:
        """Begin a run, or go on from ``settings.schedule.first`` and ``settings.lease_state``."""
        self.grants = GrantLedger(settings.schedule, settings.grant_timeout_s)
        self.leases = {name: LeaseBook(name, order) for name, order in settings.datasets.items()}
        self.sessions: dict[int, str] = {}
        self.answers: dict[int, tuple[int, Any]] = {}
        self.snapshots: list[int] = []
        self.lease_notes: list[str] = []
        for name, state in settings.lease_state.items():
            if name not in self.leases or not self.leases[name].restore(state):
                self.lease_notes.append(f'dataset "{name}" has changed since the snapshot: it is read from its start')

    def join(self, worker: int, session: str, now: float) -> None:
        """A new process takes the place of ``worker``."""
        self.sessions[worker] = session
        self.answers.pop(worker, None)
        self.grants.join(worker, now)
        self._release(worker)

    def leave(self, worker: int) -> None:
        """A worker is done."""
        self.sessions.pop(worker, None)
        self.answers.pop(worker, None)
        self.grants.leave(worker)
        self._release(worker)

    def lose(self, worker: int) -> None:
        """A worker fell silent."""
        self.grants.lose(worker)
        self._release(worker)

    def once(self, worker: int, request: int, call: str, args: list[Any]) -> tuple[Any, bool]:
        """Make one of the calls below for a worker, or give the answer again if this very request was made before.

        A worker whose connection broke repeats its open request; the server may have been killed between writing it
        down and answering.

        Args:
            worker: Who asks.
            request: Number of the request, rising by one within a session.
            call: ``request_grant``, ``request_next``, ``acknowledge``, ``lease`` or ``return_lease``.
            args: Further arguments of the call.

        Returns:
            The answer as plain JSON values, and whether it is new.
        """
        last, answer = self.answers.get(worker, (0, None))
        if request == last:
            return answer, False
        method: Callable[..., Any] = getattr(self, call)
        answer = method(worker, *args)
        self.answers[worker] = (request, answer)
        return answer, True

    def request_grant(self, worker: int, want: int, now: float) -> dict[str, Any]:
        """See ``GrantLedger.request``; the answer as JSON."""
        return answer_to_json(self.grants.request(worker, want, now))

    def request_next(self, worker: int, want: int, held: int, now: float) -> dict[str, Any]:
        """See ``GrantLedger.request`` with a grant that is still held; the answer as JSON."""
        return answer_to_json(self.grants.request(worker, want, now, held))

    def acknowledge(self, worker: int, grant_id: int, now: float) -> bool:
        """See ``GrantLedger.acknowledge``."""
        return self.grants.acknowledge(worker, grant_id, now)

    def lease(self, worker: int, dataset: str) -> dict[str, Any] | None:
        """See ``LeaseBook.lease``; None when every step of the run is done.

        Raises:
            ProtocolError: No such dataset.
        """
        book = self._book(dataset)
        return asdict(book.lease(worker)) if self.grants.acknowledged < self.grants.schedule.max_iter else None

    def return_lease(self, worker: int, dataset: str, lease_id: int, consumed: int | None) -> dict[str, Any] | None:
        """See ``LeaseBook.complete``; the report of the epoch that this ended, if any."""
        report = self._book(dataset).complete(worker, lease_id, consumed)
        return None if report is None else asdict(report)

    def state_received(self, worker: int, iteration: int) -> None:
        """See ``GrantLedger.state_received``."""
        self.grants.state_received(worker, iteration)

    def copied(self, iteration: int) -> None:
        """See ``GrantLedger.copied``."""
        self.grants.copied(iteration)

    def closed(self, iteration: int) -> None:
        """See ``GrantLedger.closed``; the number stays in ``snapshots``."""
        self.grants.closed(iteration)
        self.snapshots.append(iteration)

    def to_state(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return {
            "grants": self.grants.to_state(),
            "leases": {name: book.to_state() for name, book in self.leases.items()},
            "sessions": [[worker, session] for worker, session in self.sessions.items()],
            "answers": [[worker, request, answer] for worker, (request, answer) in self.answers.items()],
            "snapshots": self.snapshots,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``to_state`` described."""
        self.grants.restore(state["grants"])
        for name, book in self.leases.items():
            book.restore(state["leases"][name])
        self.sessions = dict(state["sessions"])
        self.answers = {worker: (request, answer) for worker, request, answer in state["answers"]}
        self.snapshots = list(state["snapshots"])

    def _book(self, dataset: str) -> LeaseBook:
        if dataset not in self.leases:
            msg = f'dataset "{dataset}" is not part of this run; known: {", ".join(self.leases) or "none"}'
            raise ProtocolError(msg)
        return self.leases[dataset]

    def _release(self, worker: int) -> None:
        for book in self.leases.values():
            book.release(worker)


class Journal:
    """Calls on ``RunBooks``, one JSON line each, written before their answer leaves the server.

    One ``write`` a line: a killed server loses at most the line it was writing, and with it a call whose answer nobody
    has seen. The file lives in the page cache; it protects against the death of the process, not of the host, where
    the run goes on from its last snapshot.
    """

    def __init__(self, path: Path) -> None:
        """Open or make the file."""
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._handle = self._open()

    def replay(self, books: RunBooks) -> int:
        """Repeat every call of the file on fresh books; returns how many there were."""
        n_calls = 0
        whole = 0
        with self._path.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                call, args = json.loads(line)
                if call == "restore":
                    books.restore(args[0])
                else:
                    _method(books, call)(*args)
                n_calls += 1
        os.ftruncate(self._handle, whole)
        return n_calls

    def record(self, books: RunBooks, call: str, args: tuple[Any, ...]) -> Any:
        """Write a call down, make it, return its result; a call that raises is not in the file afterwards."""
        before = os.fstat(self._handle).st_size
        if before > COMPACT_BYTES:
            self._compact(books)
            before = os.fstat(self._handle).st_size
        os.write(self._handle, json.dumps([call, args]).encode() + b"\n")
        try:
            return _method(books, call)(*args)
        except Exception:
            os.ftruncate(self._handle, before)
            raise

    def close(self) -> None:
        """Close the file; it stays where it is."""
        os.close(self._handle)

    def _compact(self, books: RunBooks) -> None:
        with write_scratch(self._path) as temporary:
            temporary.write_text(json.dumps(["restore", [books.to_state()]]) + "\n", encoding="utf-8")
        os.close(self._handle)
        self._handle = self._open()

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _method(books: RunBooks, call: str) -> Callable[..., Any]:
    method: Callable[..., Any] = getattr(books, call)
    return method
