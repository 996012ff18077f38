"""Every strategy with every solver type and with batch statistics, and what each becomes with one worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepspark_ops.config.train import TrainConfig
from deepspark_ops.exchange.strategies.base import find_strategy, strategy_names
from deepspark_ops.param_vector import Vector
from tests.integration.train.in_process import CAFFE, Finished, run_in_process
from tests.integration.train.test_caffe_runs import assert_params, recorded
from tests.integration.train.test_strategies_learn import loss_over_the_data

pytestmark = pytest.mark.tf

STRATEGIES = [name for name in strategy_names() if find_strategy(name).name == name]
WITH_RATES = [name for name in STRATEGIES if not find_strategy(name).repeats_data]
SOLVERS = ["nesterov", "adagrad", "rmsprop", "adadelta", "adam"]
BOTH = [
    # Each solver type with one strategy; `make test-long` has all pairs. test_strategies_learn.py has each strategy.
    pytest.param(solver, strategy, marks=[] if at == SOLVERS.index(solver) else pytest.mark.long)
    for at, strategy in enumerate(WITH_RATES)
    for solver in SOLVERS
]


def but_for_a_few(*quick: str) -> list[Any]:
    """Return all strategies, but for these with marker long."""
    assert set(quick) <= set(WITH_RATES)
    return [pytest.param(name, marks=[] if name in quick else pytest.mark.long) for name in WITH_RATES]


@pytest.fixture(scope="module")
def center_of_one(tmp_path_factory: pytest.TempPathFactory) -> Vector:
    """Return the center of a run by one worker, equal for all strategies."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(CAFFE)
        return strategy_run("sgd_batchnorm", "easgd", tmp_path_factory.mktemp("alone") / "run", n_workers=1).center


@pytest.fixture(autouse=True)
def _as_caffe_was_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CAFFE)


def strategy_run(case: str, strategy: str, run_dir: Path, *, n_workers: int = 2, max_iter: int = 40) -> Finished:
    config = TrainConfig(
        solver=Path("solvers") / case / "solver.prototxt",
        overrides=f"display: 1 max_iter: {max_iter}",
        weights=Path("solvers") / case / "init.caffemodel",
        run_dir=run_dir,
        n_workers=n_workers,
        strategy=strategy,
        comm_period=1 if find_strategy(strategy).comm_period_one else 2,
    )
    finished = run_in_process(config)
    assert [outcome.ending for outcome in finished.outcomes] == ["finished"] * n_workers, finished.outcomes
    return finished


def assert_learned(finished: Finished) -> None:
    run = finished.prepared.run
    first, last = (loss_over_the_data(run, vector) for vector in (finished.start.center, finished.center))
    assert last < first


@pytest.mark.parametrize(("solver", "strategy"), BOTH)
def test_every_solver_type_learns_under_every_strategy(solver: str, strategy: str, tmp_path: Path) -> None:
    assert_learned(strategy_run(f"{solver}_mlp", strategy, tmp_path / "run"))


@pytest.mark.parametrize("strategy", but_for_a_few("easgd", "sync"))
def test_batch_statistics_of_the_center_are_those_of_the_data(
    strategy: str, center_of_one: Vector, tmp_path: Path
) -> None:
    finished = strategy_run("sgd_batchnorm", strategy, tmp_path / "run")
    assert_learned(finished)
    (layer,) = finished.prepared.run.statistics().layers
    # One worker's sums over as many minibatches, each of weight 1 when it comes and less by its fraction each time.
    assert finished.center[layer.factor] == pytest.approx(center_of_one[layer.factor], rel=1e-5)
    means, deviations = [], []
    for center in (finished.center, center_of_one):
        factor = center[layer.factor]
        assert factor > 1.0
        means.append(center[slice(*layer.mean)] / factor)
        deviations.append(np.sqrt(center[slice(*layer.var)] / factor))
    # The layer's input moves while the net learns, differently with other strategies; sums with another factor
    # would be off by that factor, which is about 20.
    assert (np.abs(means[0] - means[1]) < 2 * np.max(deviations)).all()
    assert ((deviations[0] / deviations[1] > 0.2) & (deviations[0] / deviations[1] < 5)).all()


@pytest.mark.parametrize("strategy", but_for_a_few("easgd", "sync"))
@pytest.mark.parametrize("case", [pytest.param("sgd_mlp", marks=pytest.mark.long), "adam_mlp"])
def test_one_worker_repeats_caffes_run_whatever_the_strategy(case: str, strategy: str, tmp_path: Path) -> None:
    finished = strategy_run(case, strategy, tmp_path / "run", n_workers=1, max_iter=20)
    assert_params(finished, recorded(case), "iter_0020", 1e-4)
