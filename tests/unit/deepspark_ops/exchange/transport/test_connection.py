"""The address of the exchange on its way to a worker's process, and requests without a wait."""

from __future__ import annotations

import json

import pytest

from deepspark_ops.errors import ExchangeUnavailable, PushRefused
from deepspark_ops.exchange.transport.connection import ExchangeAddress, ServerConnection


def test_an_address_survives_json_whole() -> None:
    address = ExchangeAddress("h", 1, 2**63, bytes(range(32)), "socket", 2.5, (3, 4), "tls", b"\xff" * 32)
    assert ExchangeAddress.from_plain(json.loads(json.dumps(address.to_plain()))) == address


class Line:
    """A connection that breaks when ``n_frames`` frames were sent; it answers each frame, in turn."""

    def __init__(self, log: list[str], number: int, n_frames: int) -> None:
        self._log, self._number, self._n_frames = log, number, n_frames
        self._frames: list[str] = []

    def send(self, frame: str) -> None:
        if not self._n_frames:
            raise ExchangeUnavailable("broken")
        self._n_frames -= 1
        self._log.append(f"{self._number}: {frame}")
        self._frames.append(frame)

    def receive(self, frame: str) -> str:
        if not self._n_frames:
            raise ExchangeUnavailable("broken")
        assert self._frames.pop(0) == frame
        if frame == "bad":
            raise PushRefused("bad")
        return f"answer to {frame}"

    def close(self) -> None:
        """Nothing is open."""


class Lines(ServerConnection):
    """Takes a new line after each broken line."""

    def __init__(self, *n_frames: int) -> None:
        address = ExchangeAddress("h", 1, 1, bytes(32), exchange_timeout_s=5.0)
        super().__init__(address, "worker 0", confirms_later=True)
        self.log: list[str] = []
        self._lines = [Line(self.log, number, n) for number, n in enumerate(n_frames)]

    def _connected(self, deadline: float) -> Line:  # type: ignore[override]
        self._connection = self._connection or self._lines.pop(0)  # type: ignore[assignment]
        return self._connection  # type: ignore[return-value]

    def post(self, frame: str) -> None:
        self.send(lambda line: line.send(frame), lambda line: line.receive(frame))  # type: ignore[attr-defined]

    def ask(self, frame: str) -> str:
        self.post(frame)
        answer = self.settle()
        assert isinstance(answer, str)
        return answer


def test_answers_come_in_turn_and_a_request_does_not_wait_for_the_answer_before() -> None:
    lines = Lines(100)
    assert lines.ask("first") == "answer to first"
    lines.post("second")
    lines.post("third")
    assert lines.log == ["0: first", "0: second", "0: third"]
    assert lines.ask("fourth") == "answer to fourth"
    assert lines.repeat(lambda _, is_repeated: is_repeated) is False
    assert lines.settle() is None


@pytest.mark.parametrize("n_frames", [1, 2, 3])
def test_requests_without_an_answer_are_sent_again_in_their_order(
    n_frames: int, caplog: pytest.LogCaptureFixture
) -> None:
    lines = Lines(n_frames, 100)
    lines.repeat(lambda _, is_repeated: None)
    lines.post("first")
    lines.post("second")
    assert lines.ask("third") == "answer to third"
    assert lines.log[-3:] == ["1: first", "1: second", "1: third"]
    assert len(lines.log) == n_frames + 3
    assert [record.getMessage() for record in caplog.records] == ["worker 0: broken; trying again"]


def test_a_repeated_exchange_comes_after_the_requests_before_it() -> None:
    lines = Lines(1, 100)
    lines.repeat(lambda _, is_repeated: None)
    lines.post("first")
    lines.repeat(lambda line, _: line.send("exchange"))  # type: ignore[arg-type]
    assert lines.log == ["0: first", "1: first", "1: exchange"]


def test_a_refused_request_is_not_sent_again() -> None:
    lines = Lines(100, 100)
    assert lines.ask("first") == "answer to first"
    lines.post("bad")
    with pytest.raises(PushRefused):
        lines.ask("third")
    assert lines.ask("fourth") == "answer to fourth"
    assert lines.log == ["0: first", "0: bad", "0: third", "1: fourth"]
