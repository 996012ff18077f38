"""The state of a run that must survive the server process, as a state machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deepspark_ops.errors import ProtocolError
from deepspark_ops.exchange.state.clock import GrantClock
from deepspark_ops.exchange.state.leases import DataLeases, EpochReport, Lease
from deepspark_ops.exchange.state.pending_snapshot import consumed_samples

if TYPE_CHECKING:
    from deepspark_ops.exchange.settings import ExchangeSettings


class ExchangeState:
    """Grants, data leases and worker processes of one run; every change is a ``Message``.

    Deterministic: the same messages at the same times give the same state. The journal relies on this.
    Not thread-safe.

    Attributes:
        grants: The clock.
        leases: Data leases by dataset.
        sessions: Worker -> its present process.
        answers: Worker -> number, call and answer, as JSON values, of its last request.
        snapshots: Iterations of complete snapshots, in the order of completion.
        positions: Of a snapshot that is due and not complete: iteration -> dataset -> ``DataLeases.to_state`` when its
            last step was acknowledged. Its center is of that moment, and a piece that is read to its end before the
            last worker's state is there must not be missing from it.
        lease_notes: Notes for the user on the data positions that the run started with.
        read_epochs: Epochs that were read to the end, for the server to report; not part of ``to_state``.
    """

    def __init__(self, settings: ExchangeSettings) -> None:
        """Start a run, or continue from ``settings.schedule.first`` and ``settings.lease_state``."""
        evens_pace = settings.running_strategy().even_pace
        self.grants = GrantClock(
            settings.schedule, settings.grant_timeout_s, evens_pace=evens_pace, on_due=self._note_positions
        )
        self.leases = {name: DataLeases(name, order) for name, order in settings.datasets.items()}
        self.sessions: dict[int, str] = {}
        self.answers: dict[int, tuple[int, str, Any]] = {}
        self.snapshots: list[int] = []
        self.positions: dict[int, dict[str, Any]] = {}
        self.read_epochs: list[EpochReport] = []
        self.lease_notes: list[str] = []
        for name, state in settings.lease_state.items():
            if name not in self.leases or not self.leases[name].restore(state):
                self.lease_notes.append(f'dataset "{name}" has changed since the snapshot: it is read from its start')

    def join(self, worker: int, session: str, now: float) -> None:
        """Admit a new process of ``worker``; release grants and leases of the old process."""
        self.sessions[worker] = session
        self.answers.pop(worker, None)
        self.grants.join(worker, now)
        self._release(worker)

    def leave(self, worker: int) -> None:
        """Remove a finished worker; release its open grants and leases."""
        self.sessions.pop(worker, None)
        self.answers.pop(worker, None)
        self.grants.leave(worker)
        self._release(worker)

    def lose(self, worker: int) -> None:
        """Give up a silent or dead worker; release its grants and leases."""
        self.grants.lose(worker)
        self._release(worker)

    def lease(self, worker: int, dataset: str, read: Sequence[int]) -> Lease | None:
        """Note leases of ``dataset`` as read, and lease the next piece; None when every step of the run is done.

        Raises:
            ProtocolError: No such dataset.
        """
        if dataset not in self.leases:
            msg = f'dataset "{dataset}" is not part of this run; known: {", ".join(self.leases) or "none"}'
            raise ProtocolError(msg)
        leases = self.leases[dataset]
        for lease in read:
            for iteration, positions in self.positions.items():
                if self.grants.awaits(worker, iteration):  # the worker's later state will include this piece
                    leases.note_read(positions[dataset], lease)
            if (report := leases.complete(worker, lease)) is not None:
                self.read_epochs.append(report)
        return None if self.grants.all_done else leases.lease(worker)

    def retry_leases(self, iteration: int, metas: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
        """Return the position of a retry in each dataset, for a due and incomplete snapshot.

        Args:
            iteration: The snapshot's.
            metas: What came with the workers' states; see ``consumed_samples``.
        """
        return {
            name: self.leases[name].retry_state(state, consumed_samples(metas, name))
            for name, state in self.positions[iteration].items()
        }

    def leave_out_snapshot(self, iteration: int) -> None:
        """Drop a due snapshot."""
        self.grants.left_out(iteration)
        del self.positions[iteration]

    def complete_snapshot(self, iteration: int) -> None:
        """Note that every part of a snapshot is written."""
        self.grants.closed(iteration)
        self.snapshots.append(iteration)
        del self.positions[iteration]

    def to_state(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return {
            "grants": self.grants.to_state(),
            "leases": {name: leases.to_state() for name, leases in self.leases.items()},
            "sessions": [[worker, session] for worker, session in self.sessions.items()],
            "answers": [[worker, *answer] for worker, answer in self.answers.items()],
            "snapshots": self.snapshots,
            "positions": [[iteration, positions] for iteration, positions in self.positions.items()],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take the variables that ``to_state`` returned."""
        self.grants.restore(state["grants"])
        for name, leases in self.leases.items():
            leases.restore(state["leases"][name])
        self.sessions = dict(state["sessions"])
        self.answers = {worker: (number, call, answer) for worker, number, call, answer in state["answers"]}
        self.snapshots = list(state["snapshots"])
        self.positions = dict(state["positions"])

    def _note_positions(self, iteration: int) -> None:
        self.positions[iteration] = {name: leases.to_state() for name, leases in self.leases.items()}

    def _release(self, worker: int) -> None:
        for leases in self.leases.values():
            leases.release(worker)
