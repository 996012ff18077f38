"""The one clock: which minibatches were granted to whom, and which are done. Pure logic; time is passed in."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.state.grants import Finished, Grant, GrantAnswer, Schedule, Wait

WAIT_S = 0.05
"""How long a worker that has nothing to do sleeps before it asks again, seconds."""
PATIENCE = 5.0
"""A worker may be silent for this many times the slowest grant seen, where that exceeds the timeout: on large nets one
grant takes longer than any fixed number of seconds."""


@dataclass
class _Open:
    """A grant that is out, or that expired and was not given to anybody else yet."""

    grant: Grant
    worker: int
    since: float


@dataclass
class _Presence:
    """What is known of a worker that joined."""

    seen: float
    lost: bool = False


@dataclass
class _Books:
    """Everything that changes, plain enough for JSON."""

    next: int
    done_below: int
    done_above: list[tuple[int, int]] = field(default_factory=list)
    returned: list[tuple[int, int]] = field(default_factory=list)
    next_id: int = 1
    slowest_grant_s: float = 0.0
    next_snapshot: int | None = None
    final_test: str = "none"
    n_reissued: int = 0


class GrantLedger:
    """The books of one run. Not thread-safe: the coordinator holds its lock around every call.

    Promised, whatever the order of requests, losses and late answers: every step below ``max_iter`` is acknowledged
    exactly once in the books; no grant crosses a test or snapshot boundary; a snapshot is due when every step below
    it is acknowledged and not before.
    """

    def __init__(self, schedule: Schedule, grant_timeout_s: float) -> None:
        """Start at ``schedule.first``.

        Args:
            schedule: Boundaries.
            grant_timeout_s: A worker silent for this long loses its grant (see ``PATIENCE``).
        """
        self.schedule = schedule
        self._timeout_s = grant_timeout_s
        first = min(schedule.first, schedule.max_iter)
        self._books = _Books(next=first, done_below=first, next_snapshot=schedule.next_snapshot(schedule.first))
        if schedule.tests_at(schedule.max_iter):
            self._books.final_test = "due"
        self._open: dict[int, _Open] = {}
        self._expired: dict[int, _Open] = {}
        self._workers: dict[int, _Presence] = {}
        self._states: dict[int, set[int]] = {}
        self._due: list[int] = []

    @property
    def clock(self) -> int:
        """Steps granted so far: the clock of events."""
        return self._books.next

    @property
    def acknowledged(self) -> int:
        """Steps done, over all workers, ``schedule.first`` included."""
        return self._books.done_below + sum(stop - start for start, stop in self._books.done_above)

    @property
    def n_reissued(self) -> int:
        """Grants that were lost and given again."""
        return self._books.n_reissued

    @property
    def live_workers(self) -> tuple[int, ...]:
        """Workers that joined and neither left nor fell silent, ascending."""
        return tuple(sorted(w for w, presence in self._workers.items() if not presence.lost))

    @property
    def finished(self) -> bool:
        """Every step acknowledged, the last test done, every snapshot put down."""
        return (
            self._books.done_below >= self.schedule.max_iter
            and self._books.final_test in ("none", "done")
            and not self._due
            and not self._states
        )

    def join(self, worker: int, now: float) -> None:
        """A worker (re)starts: what an earlier life of it held is given to others."""
        self._forget(worker)
        self._workers[worker] = _Presence(seen=now)

    def leave(self, worker: int) -> None:
        """A worker goes in peace; what it still holds is given to others."""
        self._forget(worker)
        self._workers.pop(worker, None)

    def lose(self, worker: int) -> None:
        """A worker is known to be gone; it may come back."""
        self._release(worker)
        if worker in self._workers:
            self._workers[worker].lost = True

    def seen(self, worker: int, now: float) -> None:
        """A worker gave a sign of life; a lost one is back."""
        self._workers[worker] = _Presence(seen=now)

    def request(self, worker: int, want: int, now: float, held: int = 0) -> GrantAnswer:
        """Answer a worker that wants up to ``want`` steps; a repeated request gets the same grant again.

        ``held`` is the id of the last grant that it has computed and not exchanged yet: it gets a later one.

        Raises:
            ConfigError: ``want`` below 1.
        """
        if want < 1:
            msg = f"worker {worker}: grant of {want} steps requested; at least 1"
            raise ConfigError(msg)
        self.seen(worker, now)
        for entry in self._open.values():
            if entry.worker == worker and entry.grant.id > held:
                return entry.grant
        state_for = self._asked_of(worker)
        steps = self._take_steps(want)
        if steps is not None:
            return self._issue(worker, steps, self.schedule.tests_at(steps[0]), state_for, now)
        all_done = self._books.done_below >= self.schedule.max_iter
        tests = all_done and self._books.final_test == "due"
        if tests or state_for:
            if tests:
                self._books.final_test = "running"
            at = self.schedule.max_iter if tests else self._books.next
            return self._issue(worker, (at, at), tests, state_for, now)
        return Finished() if self.finished else Wait(WAIT_S)

    def acknowledge(self, worker: int, grant_id: int, now: float) -> bool:
        """Book a grant's steps as done.

        An expired grant that nobody else was given counts too: with one slow worker nothing is trained twice.

        Returns:
            Whether the books took it; False if it was acknowledged before or was given to somebody else.
        """
        self.seen(worker, now)
        entry = self._open.get(grant_id)
        if entry is not None and entry.worker == worker:
            del self._open[grant_id]
            self._books.slowest_grant_s = max(self._books.slowest_grant_s, now - entry.since)
        else:
            entry = self._expired.get(grant_id)
            if entry is None or entry.worker != worker:
                return False
            self._withdraw(entry)
        self._complete(entry.grant)
        return True

    def silent(self, now: float) -> tuple[int, ...]:
        """Return the live workers that gave no sign of life for too long; the caller decides to ``lose`` them."""
        return tuple(w for w in self.live_workers if now - self._workers[w].seen > self._patience_s(w))

    @property
    def due(self) -> tuple[int, ...]:
        """Snapshots that are due and whose center has not been copied yet, ascending."""
        return tuple(self._due)

    def copied(self, iteration: int) -> None:
        """The center of a due snapshot has been copied."""
        if iteration in self._due:
            self._due.remove(iteration)

    def awaits(self, worker: int, iteration: int) -> bool:
        """Whether a worker's state for a snapshot is missing."""
        return worker in self._states.get(iteration, ())

    def state_received(self, worker: int, iteration: int) -> None:
        """A worker's state for a snapshot has arrived."""
        self._states.get(iteration, set()).discard(worker)

    @property
    def complete(self) -> tuple[int, ...]:
        """Snapshots of which the center is copied and no state is missing, ascending."""
        return tuple(sorted(n for n, missing in self._states.items() if not missing and n not in self._due))

    def closed(self, iteration: int) -> None:
        """A complete snapshot has been put down."""
        self._states.pop(iteration, None)

    def to_state(self) -> dict[str, Any]:
        """Return the whole ledger as plain JSON values."""
        return {
            "books": asdict(self._books),
            "open": [[asdict(e.grant), e.worker, e.since] for e in self._open.values()],
            "expired": [[asdict(e.grant), e.worker, e.since] for e in self._expired.values()],
            "workers": [[worker, p.seen, p.lost] for worker, p in self._workers.items()],
            "states": [[iteration, sorted(missing)] for iteration, missing in self._states.items()],
            "due": self._due,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``to_state`` described; the schedule is this ledger's own."""
        books = dict(state["books"])
        for name in ("done_above", "returned"):
            books[name] = [tuple(span) for span in books[name]]
        self._books = _Books(**books)
        for target, rows in ((self._open, state["open"]), (self._expired, state["expired"])):
            target.clear()
            target.update({grant["id"]: _Open(Grant(**grant), worker, since) for grant, worker, since in rows})
        self._workers = {worker: _Presence(seen, lost) for worker, seen, lost in state["workers"]}
        self._states = {iteration: set(missing) for iteration, missing in state["states"]}
        self._due = list(state["due"])

    def _patience_s(self, worker: int) -> float:
        holds = any(e.worker == worker for e in self._open.values())
        return max(self._timeout_s, PATIENCE * self._books.slowest_grant_s if holds else 0.0)

    def _asked_of(self, worker: int) -> int:
        return min((n for n, missing in self._states.items() if worker in missing), default=0)

    def _take_steps(self, want: int) -> tuple[int, int] | None:
        """Return the lowest steps that nobody has, at most ``want`` of them, without a boundary inside."""
        books = self._books
        if books.returned:
            start, stop = books.returned.pop(0)
            # Whoever held these steps can no longer answer for them.
            self._expired = {
                i: e for i, e in self._expired.items() if not (e.grant.start < stop and start < e.grant.stop)
            }
            books.n_reissued += 1
            if stop - start > want:
                bisect.insort(books.returned, (start + want, stop))
                stop = start + want
            return start, stop
        if books.next >= self.schedule.max_iter:
            return None
        start = books.next
        books.next = self.schedule.cut(start, start + want)
        return start, books.next

    def _issue(self, worker: int, steps: tuple[int, int], tests: bool, state_for: int, now: float) -> Grant:
        grant = Grant(steps[0], steps[1] - steps[0], tests, state_for, self._books.next_id)
        self._books.next_id += 1
        self._open[grant.id] = _Open(grant, worker, now)
        return grant

    def _release(self, worker: int) -> None:
        """Put what a worker holds back; forget that its state is awaited."""
        for grant_id in [i for i, e in self._open.items() if e.worker == worker]:
            entry = self._open.pop(grant_id)
            if entry.grant.count:
                bisect.insort(self._books.returned, (entry.grant.start, entry.grant.stop))
                self._expired[grant_id] = entry
            elif entry.grant.tests:
                self._books.final_test = "due"
        for missing in self._states.values():
            missing.discard(worker)

    def _forget(self, worker: int) -> None:
        """Release, and hear nothing more about grants that expired: whoever answers for them is another process."""
        self._release(worker)
        self._expired = {i: e for i, e in self._expired.items() if e.worker != worker}

    def _withdraw(self, entry: _Open) -> None:
        """Take an expired grant out of the steps that wait to be given again."""
        del self._expired[entry.grant.id]
        self._books.returned.remove((entry.grant.start, entry.grant.stop))

    def _complete(self, grant: Grant) -> None:
        if not grant.count:
            if grant.tests:
                self._books.final_test = "done"
            return
        books = self._books
        bisect.insort(books.done_above, (grant.start, grant.stop))
        while books.done_above and books.done_above[0][0] == books.done_below:
            books.done_below = books.done_above.pop(0)[1]
        while books.next_snapshot is not None and books.next_snapshot <= books.done_below:
            self._due.append(books.next_snapshot)
            self._states[books.next_snapshot] = set(self.live_workers)
            books.next_snapshot = self.schedule.next_snapshot(books.next_snapshot)
