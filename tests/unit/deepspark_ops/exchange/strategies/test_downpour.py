from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import configure, find_strategy
from tests.reference.slow_strategies import slow_downpour
from tests.unit.deepspark_ops.exchange.strategies.played_run import INITIAL, N_WORKERS, RUN, assert_same, play


def test_default_push_is_the_mean_movement(tmp_path: Path) -> None:
    assert_same(play(tmp_path, "downpour"), slow_downpour(INITIAL, RUN, N_WORKERS, 1.0 / N_WORKERS))


def test_given_scale_is_used(tmp_path: Path) -> None:
    assert_same(play(tmp_path, "downpour", {"push_scale": 0.7}), slow_downpour(INITIAL, RUN, N_WORKERS, 0.7))


def test_worker_goes_on_from_the_center(tmp_path: Path) -> None:
    locals_, center = play(tmp_path, "downpour")
    last = RUN[-1][0]
    np.testing.assert_array_equal(locals_[last], center)


def test_progress_is_the_scale() -> None:
    assert find_strategy("downpour").progress_per_step(4) == 0.25
    assert configure("downpour", {"push_scale": 1}).progress_per_step(4) == 1.0


@pytest.mark.parametrize("scale", [-0.1, 1.5, float("nan")])
def test_scale_outside_its_range_is_refused(scale: float) -> None:
    with pytest.raises(ConfigError, match=r"push_scale=.*: must be in \[0, 1\]; 0 means 1/n_workers"):
        configure("downpour", {"push_scale": scale})
