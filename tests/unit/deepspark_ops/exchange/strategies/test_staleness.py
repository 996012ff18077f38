from __future__ import annotations

from pathlib import Path

import pytest

from deepspark_ops.exchange.strategies.base import configure
from tests.reference.slow_strategies import slow_staleness
from tests.unit.deepspark_ops.exchange.strategies.played_run import INITIAL, N_WORKERS, RUN, assert_same, play


@pytest.mark.parametrize("count_own", [False, True])
def test_push_is_divided_by_its_staleness(tmp_path: Path, count_own: bool) -> None:
    result = play(tmp_path, "staleness", {"count_own": count_own})
    assert_same(result, slow_staleness(INITIAL, RUN, N_WORKERS, count_own=count_own))


@pytest.mark.parametrize(("count_own", "progress"), [(False, 1 / 3), (True, 1 / 4)])
def test_progress_is_that_of_equally_fast_workers(count_own: bool, progress: float) -> None:
    assert configure("staleness", {"count_own": count_own}).progress_per_step(4) == progress


def test_the_own_push_counts_unless_the_paper_is_asked_for() -> None:
    assert configure("staleness", {}).progress_per_step(4) == 1 / 4
