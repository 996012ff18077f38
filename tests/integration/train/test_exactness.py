"""A killed run that goes on from its last snapshot equals an undisturbed run, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import TrainingFailed
from deepspark_ops.exchange.state.leases import DataLeases, DatasetOrder, sample_order
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.train.snapshots.snapshot import last_state
from deepspark_ops.train.snapshots.state_file import RunState, read_run_state, read_worker_state
from tests.integration.train.in_process import Finished, run_in_process
from tests.integration.train.process_workers import train_in_processes

pytestmark = pytest.mark.tf

NET = """
name: "patches"
layer { name: "data" type: "Data" top: "data" top: "label"
  transform_param { crop_size: 6 mirror: true scale: 0.0078125 }
  data_param { source: "none" batch_size: 9 backend: LMDB } }
layer { name: "drop" type: "Dropout" bottom: "data" top: "data" dropout_param { dropout_ratio: 0.3 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVERS = {
    "SGD": "base_lr: 0.05 momentum: 0.9",
    "Nesterov": "base_lr: 0.05 momentum: 0.9",
    "AdaGrad": "base_lr: 0.05",
    "RMSProp": "base_lr: 0.01 rms_decay: 0.9",
    "AdaDelta": "base_lr: 1 momentum: 0.95 delta: 1e-6",
    "Adam": "base_lr: 0.01 momentum: 0.9 momentum2: 0.99",
}
MAX_ITER, SNAPSHOT = 30, 10
BEHIND_A_SNAPSHOT, BETWEEN = 10, 26


def config_for_solver(folder: Path, dataset: Path, solver: str, **fields: object) -> TrainConfig:
    folder.mkdir(parents=True)
    (folder / "net.prototxt").write_text(NET)
    (folder / "solver.prototxt").write_text(
        f'net: "{folder}/net.prototxt" type: "{solver}" {SOLVERS[solver]} lr_policy: "multistep" gamma: 0.5'
        f" stepvalue: 8 stepvalue: 18 weight_decay: 0.01 iter_size: 2 max_iter: {MAX_ITER} snapshot: {SNAPSHOT}"
        ' snapshot_prefix: "s" display: 1 random_seed: 3'
    )
    values = {"n_workers": 1, "order": "shuffled", "threads_per_worker": 1, "comm_period": 4}
    return TrainConfig(
        solver=folder / "solver.prototxt", dataset=dataset, run_dir=folder / "run", **{**values, **fields}
    )


def losses(finished: Finished) -> dict[int, float]:
    """Clock -> loss; of steps that were done again, the last."""
    return {event.clock: event.data["loss"] for event in finished.events("loss")}


def next_samples(state: RunState, n_pieces: int = 200) -> dict[str, list[tuple[int, list[int]]]]:
    """Dataset -> shard and samples of the next pieces. How many were leased ahead of their use is a matter of time."""
    samples = {}
    for name, written in state.leases.items():
        order = {**written["dataset"], "shard_samples": tuple(written["dataset"]["shard_samples"])}
        leases = DataLeases(name, DatasetOrder(**order))
        assert leases.restore(written)
        pieces = [leases.lease(0) for _ in range(n_pieces)]
        samples[name] = [(piece.shard, sample_order(piece).tolist()) for piece in pieces]
    return samples


def assert_same_state(paths: RunPaths, expected: RunPaths) -> None:
    """Compare what the next life would take besides the parameters."""
    state_path, expected_path = last_state(paths), last_state(expected)
    assert state_path is not None
    assert expected_path is not None
    state, expected_state = read_run_state(state_path), read_run_state(expected_path)
    assert replace(state, leases={}) == replace(expected_state, leases={})
    assert next_samples(state) == next_samples(expected_state)
    for worker in state.workers:
        worker_state, other = read_worker_state(state_path, worker), read_worker_state(expected_path, worker)
        assert worker_state is not None
        assert other is not None
        assert worker_state.updates == other.updates
        assert worker_state.history.tobytes() == other.history.tobytes()
        assert worker_state.history.any()


@pytest.mark.parametrize(
    ("solver", "deaths"),
    [
        pytest.param("SGD", {BEHIND_A_SNAPSHOT: 10}, marks=pytest.mark.long),
        pytest.param("Nesterov", {BETWEEN: 20}, marks=pytest.mark.long),
        pytest.param("AdaGrad", {BETWEEN: 20}, marks=pytest.mark.long),
        pytest.param("RMSProp", {BEHIND_A_SNAPSHOT: 10}, marks=pytest.mark.long),
        pytest.param("AdaDelta", {BETWEEN: 20}, marks=pytest.mark.long),
        ("Adam", {BEHIND_A_SNAPSHOT: 10, BETWEEN: 20}),
    ],
)
def test_a_killed_run_of_one_worker_equals_the_unbroken_run(
    solver: str, deaths: dict[int, int], dataset: Path, tmp_path: Path
) -> None:
    """``deaths`` has the clock of each death and the snapshot on disk at this clock."""
    unbroken = run_in_process(config_for_solver(tmp_path / "unbroken", dataset, solver))
    config = config_for_solver(tmp_path / "broken", dataset, solver)
    for dies_at, snapshot in deaths.items():
        dead = run_in_process(config, deaths={0: dies_at})
        assert [outcome.message for outcome in dead.outcomes] == ["died"]
        assert max(dead.prepared.run.paths.snapshot_iterations(), default=0) == snapshot
    finished = run_in_process(config)
    assert [outcome.ending for outcome in finished.outcomes] == ["finished"]
    assert finished.start.clock == snapshot
    assert_is(finished, unbroken)


def assert_is(finished: Finished, unbroken: Finished) -> None:
    assert not np.array_equal(unbroken.center, unbroken.start.center)
    assert finished.center.tobytes() == unbroken.center.tobytes()
    assert losses(finished) == losses(unbroken)
    assert sorted(losses(unbroken)) == list(range(MAX_ITER))
    assert len(set(losses(unbroken).values())) > MAX_ITER // 2
    assert_same_state(finished.prepared.run.paths, unbroken.prepared.run.paths)


@pytest.mark.long
def test_the_worker_process_is_killed_and_the_same_command_goes_on_bit_for_bit(dataset: Path, tmp_path: Path) -> None:
    unbroken = run_in_process(config_for_solver(tmp_path / "unbroken", dataset, "Adam"))
    config = config_for_solver(tmp_path / "broken", dataset, "Adam", worker_tries=1)
    with pytest.raises(TrainingFailed, match=r"^1 of 1 workers given up .* worker 0: killed"):
        train_in_processes(config, deaths={0: BETWEEN})
    paths = RunPaths(config.run_dir)
    assert paths.snapshot_iterations() == [10, 20]
    finished = run_in_process(config)
    assert finished.start.clock == 20
    assert_is(finished, unbroken)
