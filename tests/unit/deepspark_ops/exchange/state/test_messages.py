from __future__ import annotations

import json
from pathlib import Path

import pytest

from deepspark_ops.errors import ProtocolError
from deepspark_ops.exchange.state.grants import Finished, Grant, GrantAnswer, Wait
from deepspark_ops.exchange.state.leases import Lease
from deepspark_ops.exchange.state.messages import (
    Acknowledge,
    CenterCopied,
    Join,
    LeaseData,
    Leave,
    Lose,
    Message,
    RequestGrant,
    Restore,
    SnapshotComplete,
    SnapshotLeftOut,
    StateReceived,
    message_from_json,
)
from deepspark_ops.exchange.state.run_state import ExchangeState
from tests.unit.deepspark_ops.exchange.exchange_run import make_settings

MESSAGES = [
    RequestGrant(4, held=3).numbered(1, 7),
    RequestGrant(4, done=[5, 6]).numbered(1, 7),
    Acknowledge(5).numbered(1, 8),
    LeaseData("train").numbered(0, 1),
    LeaseData("train", [2, 17]).numbered(0, 2),
    Join(1, "session"),
    Leave(0),
    Lose(0),
    StateReceived(0, 20),
    CenterCopied(20),
    SnapshotComplete(20),
    SnapshotLeftOut(40),
    Restore({"grants": {}}),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_back_from_its_json(message: Message) -> None:
    assert message_from_json(json.loads(json.dumps(message.to_json()))) == message


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"call": "request_grant", "worker": 0, "number": 1, "want": "4", "held": 0}, r"want='4': expected int"),
        (
            {"call": "request_grant", "worker": 0, "number": 1, "want": 4, "held": 0, "done": [1, {}]},
            r"done=\[1, {}\]: expected ids",
        ),
        (
            {"call": "request_grant", "worker": 0, "number": 1, "want": 4, "held": 0, "done": 1},
            r"done='1': expected list",
        ),
        ({"call": "request_grant", "worker": 0, "number": 1, "want": True, "held": 0}, r"want='True': expected int"),
        ({"call": "request_grant", "worker": 0, "want": 1, "held": 0}, r"number='None': expected int"),
        (
            {"call": "lease", "worker": 0, "number": 1, "dataset": "train", "read": [0.5]},
            r"read=\[0.5\]: expected ids",
        ),
        ({"call": "join", "worker": 0, "session": 7}, r'call "join": session=\'7\': expected str'),
        ({"call": "once"}, "not a message; calls: request_grant, "),
        ({}, "not a message"),
        ([], "not a message"),
        (None, "not a message"),
    ],
)
def test_what_is_not_a_message_is_refused(plain: object, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        message_from_json(plain)


@pytest.mark.parametrize(
    "answer", [Grant(4, 2, tests=True, state_for=4, id=3), Wait(0.5), Wait(0.5, is_expected=True), Finished()]
)
def test_the_answer_to_a_grants_request_comes_back_from_its_json(answer: GrantAnswer) -> None:
    request = RequestGrant(4)
    assert request.answer_from_json(json.loads(json.dumps(request.answer_to_json(answer)))) == answer


def test_the_answers_of_leases_come_back_from_their_json() -> None:
    lease = Lease(0, 1, 2, 3, shuffle_seed=7, id=4, next_shards=(1, 5))
    sent = json.loads(json.dumps(LeaseData("train").answer_to_json(lease)))
    assert LeaseData("train").answer_from_json(sent) == lease
    assert LeaseData("train").answer_from_json(LeaseData("train").answer_to_json(None)) is None


def test_a_request_keeps_its_answer_until_the_worker_is_another_process(tmp_path: Path) -> None:
    state = ExchangeState(make_settings(tmp_path))
    Join(0, "a").apply(state, 0.0)
    grant = RequestGrant(4).numbered(0, 3).apply(state, 0.0)
    repeated = RequestGrant(4).numbered(0, 3)
    assert repeated.is_repeated(state)
    assert repeated.answer_again(state) == grant
    assert not RequestGrant(4).numbered(0, 4).is_repeated(state)
    with pytest.raises(ProtocolError, match="worker 0: request 3 was request_grant and is now lease"):
        LeaseData("train").numbered(0, 3).is_repeated(state)
    Join(0, "b").apply(state, 0.0)
    assert 0 not in state.answers
