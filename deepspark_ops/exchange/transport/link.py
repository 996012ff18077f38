"""The exchange as a worker loop sees the exchange: one protocol for all transports between worker and center."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from deepspark_ops.events import Event
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.state.grants import Grant, GrantAnswer
from deepspark_ops.exchange.state.leases import Lease
from deepspark_ops.exchange.state.messages import Acknowledge, LeaseData, Request, RequestGrant
from deepspark_ops.param_vector import Vector

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Welcome:
    """The server's answer to a worker that joins.

    Attributes:
        clock: Steps granted so far over all workers.
        n_params: Length of the parameter vector.
        n_workers: p.
        strategy: Name of the strategy that runs (``single_worker`` with one worker).
        moving_rate: alpha.
        chunk: Floats per chunk.
        transport: ``shm``, ``socket``, ``tree`` or ``local``: how this worker reaches the center.
    """

    clock: int
    n_params: int
    n_workers: int
    strategy: str
    moving_rate: float
    chunk: int
    transport: str


class RoundEnd(NamedTuple):
    """How an exchange with waiting workers ended.

    Attributes:
        waited_s: Seconds from the push to the end of the round: nothing that a longer tau would save.
        comm_period: The tau that all take from now on, 0 for each its own.
    """

    waited_s: float
    comm_period: int


NO_ROUND = RoundEnd(0.0, 0)


class ExchangeReport(NamedTuple):
    """One exchange, as reported by the worker.

    Attributes:
        sequence: This worker's exchanges so far, this one included; starts at 1.
        seconds: Wall time.
        bytes_up: Bytes from worker to center.
        bytes_down: Bytes from center to worker.
        staleness: Exchanges that other workers ended since this worker's last pull.
        overlaps: Exchanges of other workers that were open while this one was.
        distance: L2 norm of local - center before the exchange, without BatchNorm's statistics; None if not asked for,
            or without a pull.
        transport: ``shm``, ``socket``, ``tree`` or ``local``.
        round_end: Of strategies whose workers wait for each other.
        center: The center as this worker's push has left it, (n_params,), as fresh as its new parameters; statistics
            aside. None where it was not asked for.
        remark: For the log: the new tau of the worker's host and the reason, in a tree of centers; None: no change.
    """

    sequence: int
    seconds: float
    bytes_up: int
    bytes_down: int
    staleness: int
    overlaps: int
    distance: float | None
    transport: str
    round_end: RoundEnd = NO_ROUND
    center: Vector | None = None
    remark: str | None = None


@dataclass(frozen=True)
class ExchangeStatus:
    """The state of a run at one moment, as reported by the exchange.

    Attributes:
        clock: Steps granted.
        acknowledged: Steps done.
        finished: Everything is done; workers leave.
        live_workers: Ids, ascending.
        reissued_grants: Grants that were lost and given again.
        snapshots: Iterations whose parts are all in ``work/pending/iter_N``, in the order of completion.
        failure: Why the run has failed (a full disk), or None.
        exchanges: Exchanges ended, by worker id. All zero at the end: no worker ever exchanged.
        applied: Exchanges whose push the center has taken: ended ones, less those that a server vector still gathers
            (softsync). 0: nothing could have moved the center yet. While exchanges are open it may be too low.
        staleness_sums: Sum over a worker's exchanges of their staleness, by worker id.
        overlap_sums: Likewise, of their overlaps.
        duplicate_chunks: Pushed chunks that came twice and were applied once.
        uncertain_chunks: Chunks of which a killed server had perhaps applied a part.
        moved_bytes: Bytes of parameters that the ended exchanges have pushed and pulled.
        refused_pushes: Pushed chunks that were nonsense, by worker id: not finite, or absurdly long.
    """

    clock: int
    acknowledged: int
    finished: bool
    live_workers: tuple[int, ...]
    reissued_grants: int
    snapshots: tuple[int, ...]
    failure: str | None
    exchanges: tuple[int, ...]
    applied: int
    staleness_sums: tuple[int, ...]
    overlap_sums: tuple[int, ...]
    duplicate_chunks: int
    uncertain_chunks: int
    moved_bytes: int
    refused_pushes: tuple[int, ...] = ()

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> ExchangeStatus:
        """Return the status that ``Coordinator.status`` describes."""
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in plain.items()}
        return cls(**fields)


class WorkerLink(Protocol):
    """A worker's way to the center, the clock and the data leases.

    The loop of a worker::

        link.join(worker)
        local = link.pull()
        done = []
        while not isinstance(answer := link.request_grant(tau, done=done), Finished):
            done = []
            if isinstance(answer, Wait): sleep(answer.seconds); continue
            if answer.state_for: link.send_state(answer.state_for, meta, arrays)
            ...test nets if answer.tests, then answer.count steps on local...
            if answer.count: local, report = link.exchange(local)
            done = [answer]
        link.leave(); link.close()

    Thread-safe: a thread that fetches data may take leases while another exchanges.

    Every call may raise ``ExchangeUnavailable`` (no answer within ``exchange_timeout_s``; the caller may start over)
    or ``ProtocolError`` (wrong secret, a newer process took this worker's place, a server that breaks the protocol).
    """

    def join(self, worker: int) -> Welcome:
        """Announce this process as ``worker``; grants and leases of an earlier process of the worker are released."""

    def request_grant(self, want: int, *, held: Grant | None = None, done: Sequence[Grant] = ()) -> GrantAnswer:
        """Ask for up to ``want`` steps; an unacknowledged grant is returned again.

        Args:
            want: Steps, at least 1.
            held: The last grant whose exchange is due or under way: the answer is a later grant.
            done: Grants to acknowledge by the same message, whose steps are exchanged.
        """

    def acknowledge(self, grant: Grant) -> bool:
        """Report the steps of a grant as exchanged, where no request follows at once.

        Returns:
            Whether the grant counts; False if the grant expired and its steps went to others.
        """

    def pull(self) -> Vector:
        """Return a copy of the center, shape (n_params,), float32, aligned to 64 bytes, read only.

        The worker continues from the copy: staleness and the worker's next movement are counted from this pull.
        """

    def look(self, *, as_start: bool = False) -> Vector:
        """Return a copy like ``pull``, for a worker that keeps its parameters; no staleness is counted from here.

        Args:
            as_start: The worker's next movement is measured from this copy; staleness is not.
        """

    def exchange(
        self, local: Vector, *, measure_distance: bool = False, note: RoundNote | None = None
    ) -> tuple[Vector, ExchangeReport]:
        """Exchange with the center.

        Args:
            local: The worker's parameters, shape (n_params,), float32, contiguous; only read, and only during the
                call. Where the strategy's unit is the gradient: the gradient, with the parameters' statistics in place.
            measure_distance: Fill ``ExchangeReport.distance``; costs about a tenth more, so only where it is logged.
            note: Report with the push, for strategies whose workers wait for each other.

        Returns:
            The worker's new parameters, a fresh vector aligned to 64 bytes, and the report. The vector is for the
            caller to keep and read, not to write; its memory is used again by a later exchange once nothing refers to
            it any more.
        """

    def use_moving_rate(self, moving_rate: float) -> None:
        """Use another alpha for this worker's later exchanges."""

    def report_center(self) -> None:
        """Fill ``ExchangeReport.center`` in later exchanges, where the strategy pulls before a push."""

    def lease(self, dataset: str = "train", *, read: Sequence[Lease] = ()) -> Lease | None:
        """Return the next piece of data; None once every step of the run is acknowledged.

        Args:
            dataset: Name of the dataset.
            read: Leases of the dataset whose samples are all used, reported by the same message.
        """

    def send_event(self, event: Event) -> None:
        """Append an event to the run's ``events.jsonl``."""

    def send_state(
        self, iteration: int, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[np.generic]]
    ) -> None:
        """Hand over this worker's part of snapshot ``iteration``.

        Args:
            iteration: ``Grant.state_for``.
            meta: JSON values. Key ``leases``, if present, maps lease id (as text) -> samples consumed, by dataset:
                ``{"train": {"17": 300}}``: the data position of the snapshot.
            arrays: Solver history, layer state and so on; any numeric dtype.
        """

    def heartbeat(self) -> None:
        """Show that this worker lives; needed during long pauses between calls (a long test)."""

    def leave(self) -> None:
        """Leave the run; outstanding grants are reissued at once."""

    def close(self) -> None:
        """Close the connection; without an earlier ``leave`` the server takes this for a crash."""


class StateRequests(ABC):
    """The calls of a ``WorkerLink`` that change the run state: each is one message, sent by ``_ask``."""

    @abstractmethod
    def _ask(self, request: Request[_Answer]) -> _Answer:
        """Send a request under this worker's next number and return its answer."""

    def request_grant(self, want: int, *, held: Grant | None = None, done: Sequence[Grant] = ()) -> GrantAnswer:
        """See ``WorkerLink``."""
        return self._ask(RequestGrant(want, 0 if held is None else held.id, [grant.id for grant in done]))

    def acknowledge(self, grant: Grant) -> bool:
        """See ``WorkerLink``."""
        return self._ask(Acknowledge(grant.id))

    def lease(self, dataset: str = "train", *, read: Sequence[Lease] = ()) -> Lease | None:
        """See ``WorkerLink``."""
        return self._ask(LeaseData(dataset, [lease.id for lease in read]))
