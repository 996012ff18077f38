from __future__ import annotations

from pathlib import Path

import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import configure
from tests.reference.slow_easgd import slow_run
from tests.reference.slow_strategies import slow_deepspark
from tests.unit.deepspark_ops.exchange.strategies.played_run import INITIAL, N_WORKERS, RUN, assert_same, play


def test_without_decays_it_is_easgd(tmp_path: Path) -> None:
    assert_same(play(tmp_path, "deepspark", moving_rate=0.3), slow_run(INITIAL, RUN, N_WORKERS, 0.3))


@pytest.mark.parametrize("limits", [(-1, -1), (2, 1), (0, 0)])
def test_decays_follow_own_and_all_exchanges(tmp_path: Path, limits: tuple[int, int]) -> None:
    options = {
        "decay_rate": 0.5,
        "decay_step": 2,
        "decay_limit": limits[0],
        "server_factor": 0.5,
        "factor_decay_rate": 0.25,
        "factor_decay_step": 6,
        "factor_decay_limit": limits[1],
    }
    expected = slow_deepspark(INITIAL, RUN, N_WORKERS, 0.25, (0.5, 2, limits[0]), (0.5, 0.25, 6, limits[1]))
    assert_same(play(tmp_path, "deepspark", options, 0.25), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decay_rate": 1.5}, r"decay_rate=1.5: must be in \(0, 1\]"),
        ({"server_factor": 0.0}, r"server_factor=0: must be in \(0, 1\]"),
        ({"factor_decay_step": -1}, "factor_decay_step=-1: must not be negative; 0 means never"),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configure("deepspark", options)
