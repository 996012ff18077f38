from __future__ import annotations

import json
from pathlib import Path

import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.settings import ExchangeSettings
from deepspark_ops.param_vector import StatisticBlobs
from tests.unit.deepspark_ops.exchange.exchange_run import make_settings


def test_settings_survive_json(tmp_path: Path) -> None:
    settings = make_settings(
        tmp_path,
        strategy="deepspark",
        options={"decay_rate": 0.5, "decay_step": 3},
        statistics=StatisticBlobs.from_json([[1, 3, 3, 5, 5, 0.5]]),
        moving_rate=0.3,
        wire_dtype="bfloat16",
    )
    assert ExchangeSettings.from_json(json.loads(json.dumps(settings.to_json()))) == settings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_workers": 0}, "n_workers=0: must be at least 1"),
        ({"n_params": 0}, "n_params=0: must be at least 1"),
        ({"chunk": 0}, "chunk=0: must be at least 1"),
        ({"grant_timeout_s": 0.0}, "grant_timeout_s=0: must be above 0"),
        ({"run_id": 2**64}, "must fit 64 bits"),
        ({"transport": "udp"}, 'transport="udp"; allowed: auto, shm, socket'),
        ({"lock": "some"}, 'lock="some"; allowed: none, striped, full'),
        ({"wire_dtype": "int8"}, 'wire_dtype="int8"; allowed: float32, float16, bfloat16'),
        ({"n_servers": 0}, "n_servers=0: must be at least 1"),
        ({"n_servers": 2, "lock": "full"}, "n_servers=2 with lock=full: one lock holds a whole exchange"),
        ({"strategy": "easgdd"}, 'did you mean "easgd"?'),
        ({"moving_rate": 2.0}, "moving_rate=2: must be in"),
        ({"options": {"tau": 3}}, 'option "tau" of strategy easgd is unknown'),
    ],
)
def test_wrong_settings_are_refused_by_name(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_settings(tmp_path, **changes)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("strategy", "lock", "n_workers", "expected"),
    [
        ("easgd", "none", 2, "none"),
        ("easgd", "full", 2, "full"),
        ("softsync", "none", 2, "striped"),
        ("softsync", "full", 2, "full"),
        ("softsync", "none", 1, "none"),
    ],
)
def test_strategy_gets_the_lock_it_needs(
    tmp_path: Path, strategy: str, lock: str, n_workers: int, expected: str
) -> None:
    settings = make_settings(tmp_path, strategy=strategy, lock=lock, n_workers=n_workers)
    assert settings.running_lock() == expected
