"""An exchange server that kills itself at a failpoint of its code; tests run it in place of the server.

``python -m tests.integration.exchange.failing_server``. The variable ``FAILPOINTS`` names a JSON file with a list of
names. Each start removes the first name from the list and dies at this failpoint. Nothing of it is in the product:
places are functions, patched here, and stores into a worker's counters.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.worker_counters import APPLIED, APPLYING
from deepspark_ops.exchange.rounds.round_closing import ChunkwiseCloser
from deepspark_ops.exchange.server import coordinator, process
from deepspark_ops.exchange.server.center_updates import CenterUpdates
from deepspark_ops.exchange.server.coordinator import Coordinator
from deepspark_ops.exchange.server.vector_session import VectorSession
from deepspark_ops.exchange.state import journal
from deepspark_ops.exchange.state.journal import Journal
from deepspark_ops.exchange.state.messages import (
    Acknowledge,
    CenterCopied,
    Join,
    LeaseData,
    RequestGrant,
    SnapshotComplete,
    StateReceived,
)
from deepspark_ops.exchange.state.pending_snapshot import CenterCopy, PendingSnapshot
from deepspark_ops.exchange.state.state_file import StateFileWriter
from deepspark_ops.exchange.strategies.downpour import Downpour
from deepspark_ops.exchange.strategies.local_sgd import LocalSgd

Failpoint = Callable[[], None]
"""Has the process die where it says, from now on."""
SMALL_JOURNAL_BYTES = 600


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("alive")


def fail_before(owner: Any, name: str, when: Callable[..., bool] = lambda *_, **__: True) -> Failpoint:
    def install() -> None:
        plain = getattr(owner, name)

        def dying(*arguments: Any, **named: Any) -> Any:
            if when(*arguments, **named):
                die()
            return plain(*arguments, **named)

        setattr(owner, name, dying)

    return install


def fail_after(owner: Any, name: str, when: Callable[..., bool] = lambda *_, **__: True) -> Failpoint:
    def install() -> None:
        plain = getattr(owner, name)

        def dying(*arguments: Any, **named: Any) -> Any:
            answer = plain(*arguments, **named)
            if when(*arguments, **named):
                die()
            return answer

        setattr(owner, name, dying)

    return install


def recording(kind: type) -> Callable[..., bool]:
    return lambda _journal, _state, message, _now: isinstance(message, kind)


def reporting(_journal: Journal, _state: Any, message: Any, _now: float) -> bool:
    return isinstance(message, RequestGrant) and bool(message.done)


class DyingCounters:
    """The counters of a worker; the process dies before or after a store into a counter."""

    def __init__(self, cells: Any, column: int, *, is_stored: bool) -> None:
        self._cells, self._column, self._is_stored = cells, column, is_stored

    def __getitem__(self, column: int) -> Any:
        return self._cells[column]

    def __setitem__(self, column: int, value: Any) -> None:
        is_it = column == self._column and value
        if is_it and not self._is_stored:
            die()
        self._cells[column] = value
        if is_it:
            die()


def at_store(column: int, *, is_stored: bool) -> Failpoint:
    """Die as a push is counted."""

    def install() -> None:
        push, own_counters = VectorSession._push, VectorSession._own_counters

        def dying(session: VectorSession, frame: Any) -> None:
            def watched() -> tuple[int, Any]:
                worker, cells = own_counters(session)
                return worker, DyingCounters(cells, column, is_stored=is_stored)

            session._own_counters = watched  # type: ignore[method-assign]
            push(session, frame)

        VectorSession._push = dying  # type: ignore[method-assign]

    return install


def in_half_of_a_push() -> None:
    def dying(self: Downpour, center: Any, extras: Any, push: Any, context: Any, n_held: int) -> int:
        half = len(center) // 2
        np.add(center[:half], push[:half], out=center[:half])
        die()

    Downpour.server_chunk = dying  # type: ignore[method-assign]


def in_half_of_a_journal_line() -> None:
    plain = Journal._append

    def dying(self: Journal, line: bytes) -> None:
        if b'"acknowledge"' in line:
            plain(self, line[: len(line) // 2])
            die()
        plain(self, line)

    Journal._append = dying  # type: ignore[method-assign]


def in_half_of_a_centers_copy() -> None:
    def dying(self: PendingSnapshot, copy: CenterCopy) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        half = copy.center[: len(copy.center) // 2]
        self.center.with_name(f".{self.center.name}.tmp").write_bytes(half.tobytes())
        die()

    PendingSnapshot.write_center = dying  # type: ignore[method-assign]


def in_half_of_a_state() -> None:
    plain = StateFileWriter.write

    def dying(self: StateFileWriter, piece: Any) -> None:
        plain(self, piece)
        die()

    StateFileWriter.write = dying  # type: ignore[method-assign]


def as_the_journal_is_compacted(*, is_replaced: bool) -> Failpoint:
    def install() -> None:
        journal.COMPACT_BYTES = SMALL_JOURNAL_BYTES
        if is_replaced:
            fail_after(Journal, "_compact")()
        else:
            plain = Journal._open
            calls = []

            def dying(self: Journal) -> int:
                calls.append(1)
                if len(calls) > 1:  # the first one is the server's start
                    die()
                return plain(self)

            Journal._open = dying  # type: ignore[method-assign]

    return install


KINDS = (RequestGrant, Acknowledge, LeaseData, StateReceived, CenterCopied, SnapshotComplete)
FAILPOINTS: dict[str, Failpoint] = {
    "Join: before it is in the journal": fail_before(Journal, "record", recording(Join)),
    "Join: in the journal, no answer": fail_after(Journal, "record", recording(Join)),
    "Join: before the worker's process is let in": fail_before(Center, "admit"),
    "Join: let in, no answer": fail_after(Coordinator, "join"),
    **{
        f"{kind.__name__}: before it is in the journal": fail_before(Journal, "record", recording(kind))
        for kind in KINDS
    },
    # Backwards, so that every second place has each kind once.
    **{
        f"{kind.__name__}: in the journal, no answer": fail_after(Journal, "record", recording(kind))
        for kind in reversed(KINDS)
    },
    "RequestGrant with steps done: before it is in the journal": fail_before(Journal, "record", reporting),
    "RequestGrant with steps done: in the journal, no answer": fail_after(Journal, "record", reporting),
    "Acknowledge: half of its line is in the journal": in_half_of_a_journal_line,
    "a call is answered, the answer is not sent": fail_after(Coordinator, "answer"),
    "a call's event is not written": fail_before(coordinator, "append_event"),
    "a call's event is written": fail_after(coordinator, "append_event"),
    "start: before it says that it is ready": fail_after(process.ExchangeServer, "start"),
    "pull: asked for": fail_before(VectorSession, "_pull"),
    "exchange: not begun": fail_before(VectorSession, "_begin"),
    "exchange: begun, no answer": fail_after(Center, "begin"),
    "push: received, not noted": at_store(APPLYING, is_stored=False),
    "exchange: every chunk is applied, not ended": fail_before(Center, "end"),
    "exchange: ended, no answer": fail_after(Center, "end"),
    "snapshot: before the center is copied": fail_before(CenterUpdates, "copy_center"),
    "snapshot: the center is copied, not written": fail_before(PendingSnapshot, "write_center"),
    "snapshot: half of the center is written": in_half_of_a_centers_copy,
    "snapshot: the center is written, not noted": fail_after(PendingSnapshot, "write_center"),
    "snapshot: half of a worker's state is there": in_half_of_a_state,
    "snapshot: a worker's state is there, its values are not": fail_before(PendingSnapshot, "write_meta"),
    "snapshot: a worker's values are there, not noted": fail_after(PendingSnapshot, "write_meta"),
    "snapshot: before it is complete": fail_before(PendingSnapshot, "write_complete"),
    "snapshot: complete, not noted": fail_after(PendingSnapshot, "write_complete"),
    "journal: compacted, not taken": as_the_journal_is_compacted(is_replaced=False),
    "journal: compacted": as_the_journal_is_compacted(is_replaced=True),
}
"""What was acknowledged is there once, what was not is repeated, and no chunk is uncertain. Those of a worker's joining
come first: it joins once."""
UNCERTAIN_FAILPOINTS: dict[str, Failpoint] = {
    "push: noted, nothing added": at_store(APPLYING, is_stored=True),
    "push: half is added": in_half_of_a_push,
    "push: added, not counted": at_store(APPLIED, is_stored=False),
    "push: added and counted, noted as open": at_store(APPLIED, is_stored=True),
}
"""The chunk that was being added is there in part, once at most, and is counted as uncertain."""
ROUND_FAILPOINTS: dict[str, Failpoint] = {
    "round: every worker has pushed, not closed": fail_before(ChunkwiseCloser, "close"),
    "round: a chunk is about to move": fail_before(LocalSgd, "close_round"),
    "round: every chunk has moved, nobody is released": fail_after(ChunkwiseCloser, "close"),
}
"""Of a strategy that waits for rounds."""


def main() -> None:
    path = Path(os.environ["FAILPOINTS"])
    names = json.loads(path.read_text())
    if names:
        name, *later_names = names
        path.write_text(json.dumps(later_names))
        {**FAILPOINTS, **UNCERTAIN_FAILPOINTS, **ROUND_FAILPOINTS}[name]()
    process.main()


if __name__ == "__main__":
    main()
