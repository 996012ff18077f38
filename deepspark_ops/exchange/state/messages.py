"""Every message that changes the run state: requests of workers and driver, and notes of the server.

A message is a frozen object with one JSON form for wire and journal. ``apply`` calls the method of ``ExchangeState``
that changes the state. A new request is a new class here; sockets, the exchange in one process and the journal need no
change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, get_type_hints

from deepspark_ops.errors import ProtocolError
from deepspark_ops.events import DRIVER
from deepspark_ops.exchange.state.grants import GrantAnswer, Wait, answer_from_json, answer_to_json
from deepspark_ops.exchange.state.leases import Lease

if TYPE_CHECKING:
    from deepspark_ops.exchange.state.run_state import ExchangeState

HOLD_S = 0.002
"""Time after which a worker asks again that must wait for the acknowledgements of others, seconds."""

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Message(ABC):
    """A change of the run state.

    Attributes:
        call: Its name in JSON.
    """

    call: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """Return the call's name and the fields as plain JSON values."""
        return {"call": self.call, **vars(self)}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Inverse of ``to_json``; the name under ``call`` and further keys are ignored.

        Raises:
            ProtocolError: A field is missing or of another type.
        """
        values = {}
        for name, kind in _field_types(cls):
            value = plain.get(name)
            if not isinstance(value, kind) or isinstance(value, bool):
                expected = getattr(kind, "__name__", str(kind))
                msg = f'call "{cls.call}": {name}={str(value)[:40]!r}: expected {expected}'
                raise ProtocolError(msg)
            if kind is list and not all(type(item) is int for item in value):
                msg = f'call "{cls.call}": {name}={str(value)[:40]}: expected ids'
                raise ProtocolError(msg)
            values[name] = value
        return cls(**values)

    @abstractmethod
    def apply(self, state: ExchangeState, now: float) -> Any:
        """Change ``state`` at ``now``, the arrival in seconds of the server's clock.

        Deterministic, since the journal repeats the call after a restart.
        """


@dataclass(frozen=True, kw_only=True)
class Request(Message, Generic[Answer]):
    """A worker's request. A session has one answer a number: a repeated request gets the same answer again.

    A worker whose connection broke repeats its open request; the server may have been killed between writing the
    request to the journal and answering.

    Attributes:
        changes_clock: Whether the request can end a round, the run, or the steps of a snapshot.
        worker: Sender of the request.
        number: Number of the request, rising within a session.
    """

    changes_clock: ClassVar[bool] = False

    worker: int = DRIVER
    number: int = 0

    def numbered(self, worker: int, number: int) -> Self:
        """Return the same request of this worker under this number."""
        return type(self)(**{**vars(self), "worker": worker, "number": number})

    def apply(self, state: ExchangeState, now: float) -> Answer:
        """Answer, and keep the answer for a repetition."""
        answer = self.answer(state, now)
        state.answers[self.worker] = (self.number, self.call, self.answer_to_json(answer))
        return answer

    def is_repeated(self, state: ExchangeState) -> bool:
        """Whether ``state`` has the answer to this request already.

        Raises:
            ProtocolError: It has one to another call under the same number.
        """
        number, call, _ = state.answers.get(self.worker, (None, "", None))
        if number != self.number:
            return False
        if call != self.call:
            msg = f"worker {self.worker}: request {self.number} was {call} and is now {self.call}"
            raise ProtocolError(msg)
        return True

    def answer_again(self, state: ExchangeState) -> Answer:
        """Return the answer that a repeated request got before."""
        return self.answer_from_json(state.answers[self.worker][2])

    @abstractmethod
    def answer(self, state: ExchangeState, now: float) -> Answer:
        """Carry the request out."""

    @abstractmethod
    def answer_to_json(self, answer: Answer) -> Any:
        """Return the answer as plain JSON values."""

    @abstractmethod
    def answer_from_json(self, plain: Any) -> Answer:
        """Inverse of ``answer_to_json``."""


@dataclass(frozen=True)
class RequestGrant(Request[GrantAnswer]):
    """Reports grants as done and exchanged, and requests up to ``want`` steps: one message, one line of the journal.

    See ``GrantClock.acknowledge`` and ``GrantClock.request``.

    Attributes:
        want: Steps. 0: the server's note of a request that only reports, since the worker has to wait for others.
        held: Id of a grant that is computed and whose exchange is still under way; 0: none.
        done: Ids of the grants.
    """

    call = "request_grant"
    changes_clock = True

    want: int
    held: int = 0
    done: list[int] = field(default_factory=list)

    def answer(self, state: ExchangeState, now: float) -> GrantAnswer:
        """Return a grant, or what to do without one."""
        for grant in self.done:
            state.grants.acknowledge(self.worker, grant, now)
        if not self.want:
            return Wait(HOLD_S, is_expected=True)
        return state.grants.request(self.worker, self.want, now, self.held)

    def answer_to_json(self, answer: GrantAnswer) -> dict[str, Any]:
        """See ``Request``."""
        return answer_to_json(answer)

    def answer_from_json(self, plain: Any) -> GrantAnswer:
        """See ``Request``."""
        return answer_from_json(plain)


@dataclass(frozen=True)
class Acknowledge(Request[bool]):
    """Reports a grant's steps as done and exchanged, without a request; see ``GrantClock.acknowledge``."""

    call = "acknowledge"
    changes_clock = True

    grant: int

    def answer(self, state: ExchangeState, now: float) -> bool:
        """Return whether the grant still belonged to this worker."""
        return state.grants.acknowledge(self.worker, self.grant, now)

    def answer_to_json(self, answer: bool) -> bool:
        """See ``Request``."""
        return answer

    def answer_from_json(self, plain: Any) -> bool:
        """See ``Request``."""
        return bool(plain)


@dataclass(frozen=True)
class LeaseData(Request[Lease | None]):
    """Reports pieces of a dataset as read and requests the next piece; see ``ExchangeState.lease``.

    Attributes:
        dataset: Name of the dataset.
        read: Ids of the leases whose samples are all used.
    """

    call = "lease"

    dataset: str
    read: list[int] = field(default_factory=list)

    def answer(self, state: ExchangeState, now: float) -> Lease | None:
        """Return the piece; None where no step is left."""
        return state.lease(self.worker, self.dataset, self.read)

    def answer_to_json(self, answer: Lease | None) -> dict[str, Any] | None:
        """See ``Request``."""
        return None if answer is None else {**vars(answer)}

    def answer_from_json(self, plain: Any) -> Lease | None:
        """See ``Request``."""
        return None if plain is None else Lease.from_json(plain)


@dataclass(frozen=True)
class Join(Message):
    """A process, named by ``session``, takes the place of ``worker``."""

    call = "join"

    worker: int
    session: str

    def apply(self, state: ExchangeState, now: float) -> None:
        """See ``Message``."""
        state.join(self.worker, self.session, now)


@dataclass(frozen=True)
class Leave(Message):
    """A worker is done."""

    call = "leave"

    worker: int

    def apply(self, state: ExchangeState, now: float) -> None:
        """See ``Message``."""
        state.leave(self.worker)


@dataclass(frozen=True)
class Lose(Message):
    """A worker is silent, or its process is gone."""

    call = "lose"

    worker: int

    def apply(self, state: ExchangeState, now: float) -> None:
        """See ``Message``."""
        state.lose(self.worker)


@dataclass(frozen=True)
class StateReceived(Message):
    """A worker's part of snapshot ``iteration`` has arrived."""

    call = "state_received"

    worker: int
    iteration: int

    def apply(self, state: ExchangeState, now: float) -> None:
        """See ``Message``."""
        state.grants.state_received(self.worker, self.iteration)


@dataclass(frozen=True)
class CenterCopied(Message):
    """The center is copied for snapshot ``iteration``."""

    call = "center_copied"

    iteration: int

    def apply(self, state: ExchangeState, now: float) -> None:
        """See ``Message``."""
        state.grants.copied(self.iteration)


@dataclass(frozen=True)
class SnapshotLeftOut(Message):
    """Snapshot ``iteration`` is due and not taken: too many wait for the driver."""

    call = "snapshot_left_out"

    iteration: int

    def apply(self, state: ExchangeState, now: float) -> None:
        """See ``Message``."""
        state.leave_out_snapshot(self.iteration)


@dataclass(frozen=True)
class SnapshotComplete(Message):
    """Every part of snapshot ``iteration`` is written."""

    call = "snapshot_complete"

    iteration: int

    def apply(self, state: ExchangeState, now: float) -> None:
        """See ``Message``."""
        state.complete_snapshot(self.iteration)


@dataclass(frozen=True)
class TakeSnapshot(Message):
    """The driver wants a snapshot at the present clock; the run goes on."""

    call = "take_snapshot"

    def apply(self, state: ExchangeState, now: float) -> None:
        """See ``Message``."""
        state.grants.take_snapshot()


@dataclass(frozen=True)
class StopEarly(Message):
    """The driver ends the run: no further steps, a snapshot of what is done."""

    call = "stop_early"

    def apply(self, state: ExchangeState, now: float) -> None:
        """See ``Message``."""
        state.grants.stop_early()


@dataclass(frozen=True)
class StopNow(Message):
    """The driver waits no longer for workers that have not answered since ``StopEarly``."""

    call = "stop_now"

    def apply(self, state: ExchangeState, now: float) -> None:
        """See ``Message``."""
        state.grants.stop_now()


@dataclass(frozen=True)
class Restore(Message):
    """Replaces the state by an earlier ``ExchangeState.to_state``; a long journal is replaced by this message."""

    call = "restore"

    state: dict[str, Any]

    def apply(self, state: ExchangeState, now: float) -> None:
        """See ``Message``."""
        state.restore(self.state)


REQUESTS: Mapping[str, type[Request[Any]]] = {kind.call: kind for kind in (RequestGrant, Acknowledge, LeaseData)}
CONTROLS: Mapping[str, type[Message]] = {kind.call: kind for kind in (TakeSnapshot, StopEarly, StopNow)}
"""The messages of the driver."""
_CHANGES = (Join, Leave, Lose, StateReceived, CenterCopied, SnapshotLeftOut, SnapshotComplete, Restore)
_MESSAGES: Mapping[str, type[Message]] = {**REQUESTS, **CONTROLS, **{kind.call: kind for kind in _CHANGES}}


def message_from_json(plain: Any) -> Message:
    """Return the message of a ``to_json``.

    Raises:
        ProtocolError: Not one.
    """
    kind = _MESSAGES.get(str(plain.get("call"))) if isinstance(plain, dict) else None
    if kind is None:
        msg = f"{str(plain)[:80]!r}: not a message; calls: {', '.join(_MESSAGES)}"
        raise ProtocolError(msg)
    return kind.from_json(plain)


@cache
def _field_types(kind: type[Message]) -> list[tuple[str, Any]]:
    """Return name and type of each field, for ``isinstance``."""
    hints = get_type_hints(kind)
    return [(item.name, getattr(hints[item.name], "__origin__", hints[item.name])) for item in fields(kind)]
