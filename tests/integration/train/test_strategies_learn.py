"""Every strategy that a user can name trains a net with two workers through the whole loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from caffe_import.param_layout import Vector
from caffe_import.tf_graph.predict import compile_forward
from deepspark_ops.config import TrainConfig
from deepspark_ops.exchange.strategies import find_strategy, strategy_names
from deepspark_ops.train.run_setup import Run
from tests.integration.train.in_process import CAFFE, run_in_process

pytestmark = pytest.mark.tf


def loss_over_the_data(run: Run, params: Vector) -> float:
    """Return the mean loss over every sample: unlike a worker's own lines it does not depend on who was quicker."""
    (layer,) = run.train_layers()
    forward = compile_forward(run.train_net, n_threads=1)
    losses = []
    for start in range(0, layer.samples.n_samples, layer.batch_size):
        feeds = {top: np.empty(shape, np.float32) for top, shape in layer.tops.items()}
        layer.fill(layer.samples.read_wrapped(start, layer.batch_size), feeds, (0,))
        losses.append(float(forward(params, feeds)["loss"]))
    return float(np.mean(losses))


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
    run = finished.prepared.run
    first, last = (loss_over_the_data(run, vector) for vector in (finished.start.center, finished.center))
    assert last < 0.5 * first
    shown = [event.data["loss"] for event in finished.events("loss")]
    assert len(shown) >= 2
    assert np.isfinite(shown).all()
