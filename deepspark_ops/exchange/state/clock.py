"""The clock of a run: granted minibatches by worker, and acknowledged minibatches. Pure logic; callers pass time."""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, KeysView, Mapping
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from typing import Any

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.state.grants import Finished, Grant, GrantAnswer, Schedule, Wait
from deepspark_ops.exchange.state.open_grants import OpenGrant, OpenGrants
from deepspark_ops.exchange.state.paces import WorkerPaces

WAIT_S = 0.05
"""The shortest sleep of a worker without steps before its next request, seconds."""
MOST_WAITS_PER_S = 1_000
"""Requests per second of all workers without steps. At the end of a run a thousand workers wait for the last steps and
the last test: with ``WAIT_S`` alone their 20,000 requests per second would fill the server."""
PATIENCE = 5.0
"""A worker may be silent for this many times the slowest grant, where this exceeds the timeout: on large nets a
grant takes longer than any fixed number of seconds."""


@dataclass
class _ClockState:
    """All variables of the clock, as plain JSON values."""

    next: int
    done_below: int
    done_above: list[tuple[int, int]] = field(default_factory=list)
    returned: list[tuple[int, int]] = field(default_factory=list)
    next_id: int = 1
    slowest_grant_s: float = 0.0
    next_snapshot: int | None = None
    last_snapshot: int = 0
    asked_snapshot: int = 0
    stopped_at: int | None = None
    final_test: str = "none"
    n_reissued: int = 0


class GrantClock:
    """Grants of a run. Not thread-safe: the coordinator holds its lock around every call.

    The clock promises for any order of requests, losses and late answers: every step below ``max_iter`` is acknowledged
    exactly once; no grant crosses a test or snapshot boundary; a snapshot is due as soon as all steps below the
    snapshot are acknowledged.

    Attributes:
        live_changes: How often a worker came to ``live`` or left ``live``, in this process.
    """

    def __init__(
        self,
        schedule: Schedule,
        grant_timeout_s: float,
        *,
        evens_pace: bool = False,
        on_due: Callable[[int], None] = lambda _iteration: None,
    ) -> None:
        """Start at ``schedule.first``.

        Args:
            schedule: Boundaries.
            grant_timeout_s: A worker silent for this long loses its grant (see ``PATIENCE``).
            evens_pace: Slower workers get fewer steps at a time; see ``WorkerPaces``.
            on_due: Gets each snapshot when the last step below the snapshot is done; not again by ``restore``.
        """
        self.schedule = schedule
        self._evens_pace = evens_pace
        self._on_due = on_due
        self._paces = WorkerPaces()
        self._timeout_s = grant_timeout_s
        first = min(schedule.first, schedule.max_iter)
        self._state = _ClockState(
            next=first, done_below=first, next_snapshot=schedule.next_snapshot(schedule.first), last_snapshot=first
        )
        if schedule.tests_at(schedule.max_iter):
            self._state.final_test = "due"
        self._open = OpenGrants()
        self._expired = OpenGrants()
        self.live_changes = 0
        self._last_calls: OrderedDict[int, float] = OrderedDict()  # of live workers, the earliest call first
        self._states: dict[int, set[int]] = {}
        self._due: list[int] = []

    @property
    def clock(self) -> int:
        """Steps granted so far: the clock of events."""
        return self._state.next

    @property
    def acknowledged(self) -> int:
        """Steps done, over all workers, ``schedule.first`` included."""
        return self._state.done_below + sum(stop - start for start, stop in self._state.done_above)

    @property
    def end(self) -> int:
        """Clock at the end of the run: ``max_iter``, or the clock at ``stop_early`` or ``stop_now``."""
        stopped_at = self._state.stopped_at
        return self.schedule.max_iter if stopped_at is None else stopped_at

    @property
    def all_done(self) -> bool:
        """Whether every step is acknowledged; tests and snapshots may be missing."""
        return self._state.done_below >= self.end

    @property
    def reached_max_iter(self) -> bool:
        """Whether every step of the schedule is acknowledged. False for a stopped run, which a driver can resume."""
        return self._state.done_below >= self.schedule.max_iter

    @property
    def n_reissued(self) -> int:
        """Grants that were lost and granted again."""
        return self._state.n_reissued

    @property
    def live(self) -> KeysView[int]:
        """Workers that joined and neither left nor fell silent, in the order of their last calls. Not a copy."""
        return self._last_calls.keys()

    @property
    def live_workers(self) -> tuple[int, ...]:
        """A copy of ``live``, ascending."""
        return tuple(sorted(self._last_calls))

    @property
    def n_live(self) -> int:
        """Number of ``live_workers``."""
        return len(self._last_calls)

    @property
    def finished(self) -> bool:
        """Whether every step is acknowledged, the last test done and every snapshot complete."""
        return self.all_done and self._state.final_test in ("none", "done") and not self._due and not self._states

    def join(self, worker: int, now: float) -> None:
        """Admit a starting worker, and release the grants of the worker's earlier process."""
        self._forget(worker)
        self._paces.forget(worker)
        self.note_call(worker, now)

    def leave(self, worker: int) -> None:
        """Remove a finished worker, and release the worker's grants."""
        self._forget(worker)
        self._paces.forget(worker)
        self._remove_live(worker)

    def lose(self, worker: int) -> None:
        """Give up a silent or dead worker, and release the worker's grants. The next call brings the worker back."""
        self._release(worker)
        self._paces.forget(worker)
        self._remove_live(worker)

    def note_call(self, worker: int, now: float) -> None:
        """Note a call of a worker; a worker that was given up is live again."""
        self.live_changes += worker not in self._last_calls
        self._last_calls[worker] = now
        self._last_calls.move_to_end(worker)

    def open_grants(self, workers: Collection[int]) -> frozenset[int]:
        """Return the ids of the grants with steps that ``workers`` hold."""
        return frozenset(e.grant.id for worker in workers for e in self._open.of(worker) if e.grant.count)

    def snapshot_waits_for(self, grants: Collection[int], worker: int) -> bool:
        """Return whether the next snapshot waits for one of ``grants``: all steps below the snapshot are granted.

        Args:
            grants: Ids.
            worker: The grants of this worker do not count.
        """
        state = self._state
        if state.next_snapshot is None or state.next < state.next_snapshot or state.returned:
            return False
        return any(e is not None and e.worker != worker for e in map(self._open.get, grants))

    def request(self, worker: int, want: int, now: float, held: int = 0) -> GrantAnswer:
        """Answer a worker that wants up to ``want`` steps; a repeated request gets the same grant again.

        ``held`` is the last grant that the worker has computed and not exchanged yet: the worker gets a later grant.

        Raises:
            ConfigError: ``want`` below 1.
        """
        if want < 1:
            msg = f"worker {worker}: grant of {want} steps requested; at least 1"
            raise ConfigError(msg)
        self.note_call(worker, now)
        for entry in self._open.of(worker):
            if entry.grant.id > held:
                return entry.grant
        state_for = self._asked_of(worker)
        steps = self._take_steps(self._paces.share(worker, want) if self._evens_pace else want)
        if steps is not None:
            return self._issue(worker, steps, self.schedule.tests_at(steps[0]), state_for, now)
        tests = self.all_done and self._state.final_test == "due"
        if tests or state_for:
            if tests:
                self._state.final_test = "running"
            at = self.end if tests else self._state.next
            return self._issue(worker, (at, at), tests, state_for, now)
        return Finished() if self.finished else Wait(max(WAIT_S, self.n_live / MOST_WAITS_PER_S))

    def acknowledge(self, worker: int, grant_id: int, now: float) -> bool:
        """Note a grant's steps as done.

        An expired grant counts too, unless another worker was given its steps: a single slow worker trains nothing
        twice.

        Returns:
            Whether the grant counts; False after an earlier acknowledgement, or if another worker has the steps.
        """
        self.note_call(worker, now)
        entry = self._open.get(grant_id)
        if entry is not None and entry.worker == worker:
            self._open.remove(entry)
            for later in self._open.of(worker):
                later.since = now
            self._state.slowest_grant_s = max(self._state.slowest_grant_s, now - entry.since)
            if self._evens_pace and not (entry.grant.tests or entry.grant.state_for):
                self._paces.measure(worker, now - entry.since, entry.grant.count)
        else:
            entry = self._expired.get(grant_id)
            if entry is None or entry.worker != worker:
                return False
            self._withdraw(entry)
        self._complete(entry.grant)
        return True

    def silent(self, now: float) -> tuple[int, ...]:
        """Return the live workers that were silent for too long; the caller decides to ``lose`` them."""
        calls = self._last_calls
        quiet = takewhile(lambda worker: now - calls[worker] > self._timeout_s, calls)
        return tuple(sorted(worker for worker in quiet if now - calls[worker] > self._patience_s(worker)))

    @property
    def due(self) -> tuple[int, ...]:
        """Snapshots that are due and have no copied center yet, ascending."""
        return tuple(self._due)

    def copied(self, iteration: int) -> None:
        """Note that the center of a due snapshot is copied."""
        if iteration in self._due:
            self._due.remove(iteration)

    def may_be_left_out(self, iteration: int) -> bool:
        """Return whether a due snapshot is a scheduled snapshot: neither the run's last nor a user's."""
        return iteration < self.end and iteration != self._state.asked_snapshot

    def left_out(self, iteration: int) -> None:
        """Drop a due snapshot."""
        self.copied(iteration)
        self.closed(iteration)

    def awaits(self, worker: int, iteration: int) -> bool:
        """Return whether a worker's state for a snapshot is missing."""
        return worker in self._states.get(iteration, ())

    def awaits_states(self, iteration: int) -> bool:
        """Return whether any worker's state for a snapshot is missing."""
        return bool(self._states.get(iteration))

    def state_received(self, worker: int, iteration: int) -> None:
        """Note that a worker's state for a snapshot has arrived."""
        self._states.get(iteration, set()).discard(worker)

    @property
    def complete(self) -> tuple[int, ...]:
        """Snapshots with a copied center and all states, ascending."""
        return tuple(sorted(n for n, missing in self._states.items() if not missing and n not in self._due))

    def closed(self, iteration: int) -> None:
        """Forget a snapshot that is written."""
        self._states.pop(iteration, None)

    def take_snapshot(self) -> None:
        """Schedule a snapshot at the present clock; the snapshot is due when every granted step is done."""
        state = self._state
        if state.next > state.last_snapshot:
            state.asked_snapshot = state.next
            state.next_snapshot = self._snapshot_after(state.last_snapshot)
            self._note_due(lambda: self.live_workers)

    def stop_early(self) -> None:
        """End the run at the present clock, with a snapshot and without a last test."""
        state = self._state
        if state.stopped_at is None:
            state.stopped_at = state.next
            if state.final_test == "due":
                state.final_test = "none"
            self.take_snapshot()

    def stop_now(self) -> None:
        """End the run at the acknowledged steps: open grants are dropped.

        The snapshot has no states of workers with open grants. A snapshot that is due already goes without its missing
        states.
        """
        state, acknowledged = self._state, self.acknowledged
        silent = {entry.worker for entry in self._open}
        self._open, self._expired, state.returned, state.done_above = OpenGrants(), OpenGrants(), [], []
        state.next = state.done_below = state.stopped_at = acknowledged
        state.final_test, state.next_snapshot = "none", None
        for missing in self._states.values():
            missing.clear()
        if acknowledged > state.last_snapshot:
            state.next_snapshot = acknowledged
            self._note_due(lambda: set(self.live_workers) - silent)

    def to_state(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return {
            "state": asdict(self._state),
            "open": [[{**vars(e.grant)}, e.worker, e.since] for e in self._open],
            "expired": [[{**vars(e.grant)}, e.worker, e.since] for e in self._expired],
            "workers": list(self._last_calls.items()),
            "states": [[iteration, sorted(missing)] for iteration, missing in self._states.items()],
            "due": self._due,
            "paces": self._paces.to_state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take the variables that ``to_state`` returned; the schedule stays."""
        values = dict(state["state"])
        for name in ("done_above", "returned"):
            values[name] = [tuple(span) for span in values[name]]
        self._state = _ClockState(**values)
        self._open, self._expired = OpenGrants(), OpenGrants()
        for target, rows in ((self._open, state["open"]), (self._expired, state["expired"])):
            for grant, worker, since in rows:
                target.add(OpenGrant(Grant(**grant), worker, since))
        self._last_calls = OrderedDict(state["workers"])
        self.live_changes += 1
        self._states = {iteration: set(missing) for iteration, missing in state["states"]}
        self._due = list(state["due"])
        self._paces = WorkerPaces.of_state(state["paces"])

    def _remove_live(self, worker: int) -> None:
        if self._last_calls.pop(worker, None) is not None:
            self.live_changes += 1

    def _patience_s(self, worker: int) -> float:
        return max(self._timeout_s, PATIENCE * self._state.slowest_grant_s if self._open.of(worker) else 0.0)

    def _asked_of(self, worker: int) -> int:
        return min((n for n, missing in self._states.items() if worker in missing), default=0)

    def _take_steps(self, want: int) -> tuple[int, int] | None:
        """Return the lowest steps that no worker holds, at most ``want`` of them, without a boundary inside."""
        state = self._state
        if state.returned:
            start, stop = state.returned.pop(0)
            # An expired grant of these steps can no longer be acknowledged.
            for entry in [e for e in self._expired if e.grant.start < stop and start < e.grant.stop]:
                self._expired.remove(entry)
            state.n_reissued += 1
            if stop - start > want:
                bisect.insort(state.returned, (start + want, stop))
                stop = start + want
            return start, stop
        if state.next >= self.end:
            return None
        start = state.next
        state.next = self.schedule.cut(start, start + want)
        return start, state.next

    def _issue(self, worker: int, steps: tuple[int, int], tests: bool, state_for: int, now: float) -> Grant:
        grant = Grant(steps[0], steps[1] - steps[0], tests, state_for, self._state.next_id, self.n_live)
        self._state.next_id += 1
        self._open.add(OpenGrant(grant, worker, now))
        return grant

    def _release(self, worker: int) -> None:
        """Release a worker's grants, and await no state of the worker for snapshots."""
        for entry in self._open.of(worker):
            self._open.remove(entry)
            if entry.grant.count:
                bisect.insort(self._state.returned, (entry.grant.start, entry.grant.stop))
                self._expired.add(entry)
            elif entry.grant.tests:
                self._state.final_test = "due"
        for missing in self._states.values():
            missing.discard(worker)

    def _forget(self, worker: int) -> None:
        """Release, and drop the worker's expired grants: only the process of a grant may acknowledge the grant."""
        self._release(worker)
        for entry in self._expired.of(worker):
            self._expired.remove(entry)

    def _withdraw(self, entry: OpenGrant) -> None:
        """Remove an expired grant from the steps that are to be granted again."""
        self._expired.remove(entry)
        self._state.returned.remove((entry.grant.start, entry.grant.stop))

    def _complete(self, grant: Grant) -> None:
        if not grant.count:
            if grant.tests:
                self._state.final_test = "done"
            return
        state = self._state
        _insert_span(state.done_above, grant.start, grant.stop)
        if state.done_above[0][0] == state.done_below:
            state.done_below = state.done_above.pop(0)[1]
        self._note_due(lambda: self.live_workers)

    def _note_due(self, workers: Callable[[], Iterable[int]]) -> None:
        """Note snapshots with all steps done as due, and await the states of ``workers``."""
        state = self._state
        while state.next_snapshot is not None and state.next_snapshot <= state.done_below:
            state.last_snapshot = state.next_snapshot
            self._due.append(state.next_snapshot)
            self._states[state.next_snapshot] = set(workers())
            self._on_due(state.next_snapshot)
            state.next_snapshot = self._snapshot_after(state.next_snapshot)

    def _snapshot_after(self, clock: int) -> int | None:
        """Return the next scheduled or requested snapshot."""
        scheduled, requested = self.schedule.next_snapshot(clock), self._state.asked_snapshot
        if requested <= clock:
            return scheduled
        return requested if scheduled is None else min(scheduled, requested)


def _insert_span(spans: list[tuple[int, int]], start: int, stop: int) -> None:
    """Insert a span into ascending spans, joined with its neighbours: there are no more gaps than open grants."""
    position = bisect.bisect(spans, (start, stop))
    if position < len(spans) and spans[position][0] == stop:
        stop = spans.pop(position)[1]
    if position and spans[position - 1][1] == start:
        position -= 1
        start = spans.pop(position)[0]
    spans.insert(position, (start, stop))
