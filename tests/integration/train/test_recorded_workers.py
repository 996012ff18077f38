"""With several workers in a recorded order, a run that died and goes on is the unbroken run, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepspark_ops.config.train import TrainConfig
from tests.integration.train.in_process import Finished, run_in_process
from tests.integration.train.recorded_order import Turns
from tests.integration.train.test_exactness import SOLVERS, assert_same_state, config_for_solver, losses

pytestmark = pytest.mark.tf


N_WORKERS = 3
EVERY, DIES_AT, MAX_ITER = 6, 15, 18
"""A snapshot is at the end of a round of all workers: 6 minibatches are two rounds of sync, one of the others."""
SYNC: dict[str, object] = {"strategy": "sync", "comm_period": 1}
LOCAL_SGD: dict[str, object] = {"strategy": "local_sgd", "comm_period": 2, "strategy_options": "block_momentum: 0.5"}
DILOCO: dict[str, object] = {"strategy": "diloco", "comm_period": 2}


def config_in(folder: Path, dataset: Path, solver: str, **fields: object) -> TrainConfig:
    overrides = f"max_iter: {MAX_ITER} snapshot: {EVERY}"
    return config_for_solver(
        folder, dataset, solver, n_workers=N_WORKERS, overrides=overrides, rate_scale="none", **fields
    )


def assert_is(finished: Finished, unbroken: Finished) -> None:
    assert finished.center.tobytes() == unbroken.center.tobytes()
    assert losses(finished) == losses(unbroken)
    assert sorted(losses(unbroken)) == list(range(MAX_ITER))
    assert_same_state(finished.prepared.run.paths, unbroken.prepared.run.paths)


@pytest.mark.parametrize(
    ("solver", "fields"),
    [
        ("Adam", SYNC),
        ("Nesterov", LOCAL_SGD),
        ("AdaDelta", DILOCO),
        *(pytest.param(solver, SYNC, marks=pytest.mark.long) for solver in SOLVERS if solver != "Adam"),
        pytest.param("Adam", LOCAL_SGD, marks=pytest.mark.long),
        pytest.param("SGD", DILOCO, marks=pytest.mark.long),
    ],
)
def test_recorded_workers_that_died_go_on_as_the_unbroken_run(
    solver: str, fields: dict[str, object], dataset: Path, tmp_path: Path
) -> None:
    free = Turns(N_WORKERS)
    unbroken = run_in_process(config_in(tmp_path / "unbroken", dataset, solver, **fields), link_of=free.link)
    assert [outcome.ending for outcome in unbroken.outcomes] == ["finished"] * N_WORKERS
    assert set(free.recorded.steps.values()) == set(range(N_WORKERS))

    config = config_in(tmp_path / "broken", dataset, solver, **fields)
    dying = Turns(N_WORKERS, free.recorded, dies_at=DIES_AT)
    dead = run_in_process(config, link_of=dying.link)
    assert [outcome.message for outcome in dead.outcomes] == ["died"] * N_WORKERS
    assert dead.prepared.run.paths.snapshot_iterations() == [6, 12]
    finished = run_in_process(config, link_of=Turns(N_WORKERS, free.recorded).link)
    assert finished.start.clock == 12
    assert_is(finished, unbroken)
