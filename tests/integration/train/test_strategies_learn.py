"""Every strategy that a user can name trains a net with two workers through the whole loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepspark_ops.config import TrainConfig
from deepspark_ops.exchange.strategies import find_strategy, strategy_names
from tests.integration.train.in_process import CAFFE, run_in_process

pytestmark = pytest.mark.tf


@pytest.mark.parametrize("strategy", strategy_names())
def test_two_workers_lower_the_loss(strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CAFFE)
    config = TrainConfig(
        solver=Path("solvers/sgd_mlp/solver.prototxt"),
        overrides="display: 1 max_iter: 60",
        weights=Path("solvers/sgd_mlp/init.caffemodel"),
        run_dir=tmp_path / "run",
        n_workers=2,
        strategy=strategy,
        comm_period=1 if find_strategy(strategy).requires.comm_period_one else 2,
    )
    finished = run_in_process(config)
    assert [outcome.ending for outcome in finished.outcomes] == ["finished"] * 2, finished.outcomes
    losses = [event.data["loss"] for event in finished.events("loss")]
    assert max(losses[-3:]) < 0.5 * losses[0]
    assert (finished.center != finished.start.center).any()
