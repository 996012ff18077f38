"""Every strategy that a user can name trains a net with two workers through the whole loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from caffe_import.files.solverstate import history_slots, read_solverstate
from caffe_import.net.param_layout import Vector
from caffe_import.tf_graph.predict import compile_forward
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.exchange.local_exchange import LocalExchange
from deepspark_ops.exchange.strategies.base import find_strategy, strategy_names
from deepspark_ops.train.setup.run import Run
from deepspark_ops.train.setup.run_setup import prepare_run
from deepspark_ops.train.snapshots.start import exchange_settings, plan_start, restore_server
from deepspark_ops.train.snapshots.state_file import read_worker_state
from tests.integration.train.in_process import CAFFE, Finished, run_in_process

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
    run.binding.close()
    return float(np.mean(losses))


def assert_history_goes_on(finished: Finished) -> None:
    """The last snapshot holds a single history, and the next life of the run begins with this history."""
    run = finished.prepared.run
    saved = [read_worker_state(run.paths.snapshot(run.prefix, 60, "state.h5"), worker) for worker in range(2)]
    assert saved[0].history.any()
    assert np.array_equal(saved[0].history, saved[1].history)
    solverstate = read_solverstate(run.paths.snapshot(run.prefix, 60, "solverstate"))
    assert np.array_equal(history_slots(run.train_net.params, solverstate.history), saved[0].history)
    prepared = prepare_run(run.config)
    start = plan_start(prepared.run)
    exchange = LocalExchange(exchange_settings(prepared, start), start.center)
    restore_server(start, exchange.settings, exchange.center)
    assert np.array_equal(exchange.center.extras[1:], saved[0].history)
    exchange.close()


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
        comm_period=1 if find_strategy(strategy).comm_period_one else 2,
    )
    finished = run_in_process(config)
    assert [outcome.ending for outcome in finished.outcomes] == ["finished"] * 2, finished.outcomes
    run = finished.prepared.run
    first, last = (loss_over_the_data(run, vector) for vector in (finished.start.center, finished.center))
    assert last < 0.5 * first
    if find_strategy(strategy).history_at_center:
        assert_history_goes_on(finished)
    shown = [event.data["loss"] for event in finished.events("loss")]
    assert len(shown) >= 2
    assert np.isfinite(shown).all()


def test_a_snapshot_before_the_first_apply_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CAFFE)
    config = TrainConfig(
        solver=Path("solvers/sgd_mlp/solver.prototxt"),
        overrides="display: 0 max_iter: 12 snapshot: 2",
        run_dir=tmp_path / "run",
        n_workers=2,
        comm_period=1,
        strategy="softsync",
        strategy_options="updates_per_apply: 4",
    )
    finished = run_in_process(config)
    assert finished.prepared.run.paths.snapshot_iterations() == [2, 4, 6, 8, 10, 12]
    assert not np.array_equal(finished.center, finished.start.center)
