from __future__ import annotations

from pathlib import Path

import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import configure
from tests.reference.slow_strategies import slow_downpour, slow_softsync
from tests.unit.deepspark_ops.exchange.strategies.played_run import INITIAL, N_WORKERS, RUN, assert_same, play


@pytest.mark.parametrize("n_updates", [2, 3, 7])
def test_mean_of_a_group_is_applied_by_its_last_push(tmp_path: Path, n_updates: int) -> None:
    result = play(tmp_path, "softsync", {"updates_per_apply": n_updates})
    assert_same(result, slow_softsync(INITIAL, RUN, N_WORKERS, n_updates))


def test_groups_of_one_are_downpour(tmp_path: Path) -> None:
    result = play(tmp_path, "softsync", {"updates_per_apply": 1})
    assert_same(result, slow_downpour(INITIAL, RUN, N_WORKERS, 1.0 / N_WORKERS))


def test_group_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="updates_per_apply=0: must be at least 1"):
        configure("softsync", {"updates_per_apply": 0})


def test_progress_is_one_step_per_group() -> None:
    assert configure("softsync", {"updates_per_apply": 4}).progress_per_step(8) == 0.125
