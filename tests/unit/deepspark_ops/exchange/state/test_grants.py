from __future__ import annotations

import json

import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.state.grants import (
    Finished,
    Grant,
    Schedule,
    Wait,
    answer_from_json,
    answer_to_json,
)


def test_negative_number_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="test_interval=-1: must not be negative"):
        Schedule(4, test_interval=-1)


@pytest.mark.parametrize("answer", [Grant(3, 4, True, 2, 9), Wait(0.25), Wait(0.25, is_expected=True), Finished()])
def test_answers_survive_json(answer: Grant | Wait | Finished) -> None:
    assert answer_from_json(json.loads(json.dumps(answer_to_json(answer)))) == answer
