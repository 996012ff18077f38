"""Snapshots: what goes in comes out, another number of workers, files of other nets, nothing unchanged."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from caffe_import.devices.loss_scale import LossScale
from caffe_import.files.prototxt import parse_net, parse_solver
from caffe_import.files.solverstate import read_solverstate
from caffe_import.net.net_spec import build_net_spec
from caffe_import.solver.solver_spec import solver_spec
from deepspark_ops.errors import ConfigError, DataError, TrainingFailed
from deepspark_ops.exchange.state.pending_snapshot import ServerState
from deepspark_ops.exchange.state.state_file import write_state
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.train.snapshots.snapshot import SnapshotWriter, last_state, load_center, vector_digest
from deepspark_ops.train.snapshots.state_file import (
    RunState,
    read_run_state,
    read_server_state,
    read_worker_state,
    write_run_state,
)
from deepspark_ops.train.snapshots.worker_state import WorkerState
from tests.reference.heap_texts import texts_in_the_heap

NET = build_net_spec(
    parse_net("""
    name: "two"
    layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 4 dim: 3 } } }
    layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }
    """),
    phase="TRAIN",
)
N_PARAMS = 8
SOLVER = solver_spec(
    parse_solver('base_lr: 1 lr_policy: "step" gamma: 0.1 stepsize: 4 max_iter: 20 net: "x" snapshot_prefix: "two"')
)


def worker_state(worker: int) -> WorkerState:
    history = np.arange(N_PARAMS, dtype=np.float32)[np.newaxis] + 100 * worker
    return WorkerState(history, {"lstm/h": np.full((2, 3), worker, np.float32)}, updates=10 + worker)


def gather(
    paths: RunPaths,
    iteration: int,
    center: np.ndarray,
    workers: dict[int, WorkerState],
    *,
    applied: int = 1,
    server: ServerState | None = None,
) -> None:
    """Leave the parts of a snapshot as the exchange does."""
    folder = paths.work / "pending" / f"iter_{iteration}"
    folder.mkdir(parents=True)
    center.tofile(folder / "center.f32")
    metas = {}
    for worker, state in workers.items():
        metas[worker], arrays = state.to_parts()
        write_state(folder / f"worker_{worker}.npz", arrays)
    fields = {"iteration": iteration, "applied": applied, "workers": metas, "leases": {"train": {"epoch": 3}}}
    (folder / "complete.json").write_text(json.dumps(fields))
    counts = [] if server is None else server.counts.tolist()
    name = "easgd" if server is None else server.strategy
    (folder / "server.json").write_text(json.dumps({"applied": applied, "strategy": name, "counts": counts}))
    for index, vector in enumerate([] if server is None else server.vectors):
        vector.tofile(folder / f"server_{index}.f32")


def writer_of(paths: RunPaths, **changes: object) -> SnapshotWriter:
    return replace(SnapshotWriter(paths, "two", NET, SOLVER, origin=2, random_seed=5), **changes)


def test_assembled_snapshot_can_be_gone_on_from(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    center = np.linspace(-1, 1, N_PARAMS, dtype=np.float32)
    writer = writer_of(paths)
    assert not writer.is_pending(12)
    gather(paths, 12, center, {3: worker_state(3), 1: worker_state(1)})
    assert writer.is_pending(12)
    snapshot = writer.assemble(12)
    assert snapshot.weights.name == "two_iter_12.caffemodel"
    assert not (paths.work / "pending" / "iter_12").exists()

    state_path = last_state(paths)
    assert state_path == snapshot.state
    state = read_run_state(state_path)
    assert state == RunState(12, 2, N_PARAMS, 5, "two_iter_12.caffemodel", (1, 3), {"train": {"epoch": 3}}, 2)
    assert load_center(state_path, state, NET).tolist() == center.tolist()
    worker = read_worker_state(state_path, 3)
    assert worker is not None
    assert worker.history.tolist() == worker_state(3).history.tolist()
    assert worker.layer_state["lstm/h"].tolist() == [[3.0] * 3] * 2
    assert worker.updates == 13


def test_solverstate_holds_the_history_of_the_lowest_live_worker(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    gather(paths, 12, np.ones(N_PARAMS, np.float32), {10: worker_state(10), 2: worker_state(2)})
    state = read_solverstate(writer_of(paths).assemble(12).solverstate)
    assert np.concatenate([blob.ravel() for blob in state.history]).tolist() == worker_state(2).history[0].tolist()
    assert (state.iteration, state.current_step) == (12, 2)  # the rate of update 11 was made with 11 // 4
    assert state.learned_net == str(paths.snapshots / "two_iter_12.caffemodel")


def test_solverstate_counts_the_rate_steps_of_the_last_update(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    gather(paths, 13, np.ones(N_PARAMS, np.float32), {0: worker_state(0)})
    assert read_solverstate(writer_of(paths).assemble(13).solverstate).current_step == 12 // 4


def test_other_number_of_workers_takes_saved_states_in_turn(tmp_path: Path) -> None:
    path = tmp_path / "s_iter_1.state.h5"
    write_run_state(path, RunState(1, 0, N_PARAMS, 5, workers=(0, 2)), {0: worker_state(0), 2: worker_state(2)})
    n_updates = [read_worker_state(path, worker).updates for worker in range(5)]
    assert n_updates == [10, 12, 12, 12, 10]  # 0 and 2 their own; 1, 3, 4 by worker mod 2: second, second, first


def test_state_without_workers_begins_with_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.state.h5"
    write_run_state(path, RunState(1, 0, N_PARAMS, 5), {})
    assert read_worker_state(path, 0) is None


WIDE_NET = build_net_spec(
    parse_net("""
    name: "wide"
    layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 1 dim: 512 } } }
    layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 256 } }
    layer { name: "ip2" type: "InnerProduct" bottom: "ip" top: "ip2" inner_product_param { num_output: 512 } }
    """),
    phase="TRAIN",
)


@pytest.mark.parametrize("snapshot_format", ["BINARYPROTO", "HDF5"])
def test_a_snapshot_holds_the_states_of_two_workers_at_a_time(tmp_path: Path, snapshot_format: str) -> None:
    paths, n_params = RunPaths(tmp_path), WIDE_NET.params.n_params
    rng = np.random.default_rng(0)
    states = {worker: WorkerState(rng.random((2, n_params), np.float32), updates=worker) for worker in range(12)}
    gather(paths, 12, rng.random(n_params, np.float32), states)
    state_bytes = states[0].history.nbytes
    writer = writer_of(paths, net=WIDE_NET, solver=replace(SOLVER, type="Adam", snapshot_format=snapshot_format))
    tracemalloc.start()
    try:
        snapshot = writer.assemble(12)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2.5 * state_bytes
    for worker, state in states.items():
        read_state = read_worker_state(snapshot.state, worker)
        assert read_state is not None
        np.testing.assert_array_equal(read_state.history, state.history)
    blobs = read_solverstate(snapshot.solverstate).history
    np.testing.assert_array_equal(np.concatenate([blob.ravel() for blob in blobs]), states[0].history.ravel())


def test_the_history_of_the_center_is_in_the_file_once(tmp_path: Path) -> None:
    paths, history = RunPaths(tmp_path), np.arange(N_PARAMS, dtype=np.float32)
    gather(paths, 12, np.ones(N_PARAMS, np.float32), {worker: worker_state(worker) for worker in range(3)})
    history.tofile(paths.work / "pending" / "iter_12" / "history.f32")
    path = writer_of(paths).assemble(12).state
    with h5py.File(path) as file:
        assert file["workers/0/history"] == file["workers/1/history"] == file["workers/2/history"]
    for worker in range(3):
        read_state = read_worker_state(path, worker)
        assert read_state is not None
        assert read_state.history.tolist() == [history.tolist()]
        assert read_state.updates == 10 + worker


def test_hdf5_format_names_both_files_by_suffix(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    gather(paths, 4, np.ones(N_PARAMS, np.float32), {})
    snapshot = writer_of(paths, solver=replace(SOLVER, snapshot_format="HDF5")).assemble(4)
    assert sorted(path.name for path in paths.snapshots.iterdir()) == [
        "two_iter_4.caffemodel.h5",
        "two_iter_4.solverstate.h5",
        "two_iter_4.state.h5",
    ]
    assert load_center(snapshot.state, read_run_state(snapshot.state), NET).tolist() == [1.0] * N_PARAMS


def test_unchanged_parameters_are_no_snapshot(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    center = np.ones(N_PARAMS, np.float32)
    gather(paths, 4, center, {0: worker_state(0)})
    with pytest.raises(TrainingFailed, match="training changed no weight"):
        writer_of(paths, start_digest=vector_digest(center)).assemble(4)
    assert last_state(paths) is None


def test_a_center_that_has_taken_no_exchange_yet_is_a_snapshot(tmp_path: Path) -> None:
    center = np.ones(N_PARAMS, np.float32)
    gather(RunPaths(tmp_path), 4, center, {0: worker_state(0)}, applied=0)
    assert writer_of(RunPaths(tmp_path), start_digest=vector_digest(center)).assemble(4).state.is_file()


def test_a_search_may_still_stand_at_its_start_before_the_last_snapshot(tmp_path: Path) -> None:
    center = np.ones(N_PARAMS, np.float32)
    search_fields = {"start_digest": vector_digest(center), "moves_late": True, "unchanged": "raise max_iter"}
    for iteration in (4, 8):
        gather(RunPaths(tmp_path), iteration, center, {0: worker_state(0)})
    writer = writer_of(RunPaths(tmp_path), solver=replace(SOLVER, max_iter=8), **search_fields)
    assert writer.assemble(4).state.is_file()
    with pytest.raises(TrainingFailed, match="raise max_iter"):
        writer.assemble(8)


def test_state_of_another_net_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.state.h5"
    with pytest.raises(ConfigError) as raised:
        load_center(path, RunState(1, 0, 99, 5), NET)
    assert str(raised.value) == (
        f"{path}: state of a net with 99 parameters, this one has 8; give another run_dir, or the net that this run"
        " was begun with"
    )


def test_later_version_and_damage_are_named(tmp_path: Path) -> None:
    path = tmp_path / "s.state.h5"
    write_run_state(path, RunState(1, 0, N_PARAMS, 5), {})
    with h5py.File(path, "r+") as file:
        file.attrs["format_version"] = 8
    with pytest.raises(DataError, match="format version 8; this program reads versions 2, 3, 4, 5, 6, 7"):
        read_run_state(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match=r"not a state\.h5 of a run, or damaged"):
        read_run_state(path)


def test_what_a_stabiliser_knows_goes_into_the_snapshot_and_comes_out(tmp_path: Path) -> None:
    paths, curvatures = RunPaths(tmp_path), np.float32([40.0, 128.0, 95.5, 17.25])
    gather(
        paths,
        12,
        np.ones(N_PARAMS, np.float32),
        {0: replace(worker_state(0), stabiliser=curvatures), 1: worker_state(1)},
    )
    path = writer_of(paths).assemble(12).state
    first, second = (read_worker_state(path, worker) for worker in (0, 1))
    assert first is not None
    assert second is not None
    np.testing.assert_array_equal(first.stabiliser, curvatures)
    assert second.stabiliser is None
    with h5py.File(path, "r+") as file:
        file["workers/0/stabiliser"][2] = 1.0
    with pytest.raises(DataError, match="damaged"):
        read_worker_state(path, 0)


def test_a_loss_scale_goes_into_the_snapshot_and_comes_out(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    scaled = replace(worker_state(0), loss_scale=LossScale(0.25, 1999))
    gather(paths, 12, np.ones(N_PARAMS, np.float32), {0: scaled, 1: worker_state(1)})
    path = writer_of(paths).assemble(12).state
    states = [read_worker_state(path, worker) for worker in (0, 1)]
    assert [state and state.loss_scale for state in states] == [LossScale(0.25, 1999), None]
    with h5py.File(path, "r+") as file:
        file["workers/0"].attrs["good_steps"] = 1998
    with pytest.raises(DataError, match="the checksum differs from the stored checksum"):
        read_worker_state(path, 0)


def test_a_state_of_version_4_is_read(tmp_path: Path) -> None:
    path = tmp_path / "s.state.h5"
    write_run_state(path, RunState(1, 0, N_PARAMS, 5, workers=(1,)), {1: worker_state(1)})
    with h5py.File(path, "r+") as file:
        file.attrs["format_version"] = 4  # which had the same checksum of the same parts
    read_state = read_worker_state(path, 1)
    assert read_state is not None
    assert (read_state.updates, read_state.loss_scale) == (11, None)


def test_what_the_server_keeps_beside_the_center_is_in_the_snapshot(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    vectors = np.arange(2 * N_PARAMS, dtype=np.float32).reshape(2, N_PARAMS)
    server = ServerState("softsync", np.uint64([3, 2]), vectors)
    gather(paths, 12, np.ones(N_PARAMS, np.float32), {0: worker_state(0)}, server=server)
    server_state = read_server_state(writer_of(paths).assemble(12).state)
    assert server_state is not None
    assert server_state.strategy == "softsync"
    assert server_state.counts.tolist() == [3, 2]
    assert server_state.vectors.tolist() == vectors.tolist()
    gather(paths, 16, np.ones(N_PARAMS, np.float32), {0: worker_state(0)})
    assert read_server_state(writer_of(paths).assemble(16).state) is None


def test_a_state_whose_texts_have_variable_length_is_read(tmp_path: Path) -> None:
    path = tmp_path / "s.state.h5"
    server = ServerState("softsync", np.uint64([3]), np.ones((1, N_PARAMS), np.float32))
    write_run_state(path, RunState(1, 0, N_PARAMS, 5, workers=(1,)), {1: worker_state(1)}, server)
    server_state = read_server_state(texts_in_the_heap(path))
    assert server_state is not None
    assert server_state.strategy == "softsync"
    read_state = read_worker_state(path, 1)
    assert read_state is not None
    assert list(read_state.layer_state) == ["lstm/h"]


def test_a_snapshot_that_lost_what_the_server_kept_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "s.state.h5"
    server = ServerState("softsync", np.uint64([3]), np.ones((1, N_PARAMS), np.float32))
    for damage in (lambda file: file.pop("server"), lambda file: file["server/counts"].write_direct(np.uint64([4]))):
        write_run_state(path, RunState(1, 0, N_PARAMS, 5), {}, server)
        with h5py.File(path, "r+") as file:
            damage(file)
        with pytest.raises(DataError, match=r"not a state\.h5 of a run, or damaged"):
            read_server_state(path)


def test_a_state_of_version_2_is_read(tmp_path: Path) -> None:
    path = tmp_path / "s.state.h5"
    with h5py.File(path, "w") as file:
        numbers = {"clock": 12, "origin": 2, "n_params": N_PARAMS, "random_seed": 5, "current_step": 2}
        file.attrs.update({"format_version": 2, "weights": "w", **numbers})
        file["leases"] = np.frombuffer(b'{"train": {"epoch": 3}}', np.uint8)
        group = file.create_group("workers/1")
        group.attrs["updates"] = 11
        group["history"] = worker_state(1).history
        group["layer_state/0"] = worker_state(1).layer_state["lstm/h"]
        group["layer_state/0"].attrs["name"] = "lstm/h"
    assert read_run_state(path) == RunState(12, 2, N_PARAMS, 5, "w", (1,), {"train": {"epoch": 3}}, 2)
    read_state = read_worker_state(path, 1)
    assert read_state is not None
    assert (read_state.updates, read_state.history.tolist()) == (11, worker_state(1).history.tolist())
    assert read_state.layer_state["lstm/h"].tolist() == worker_state(1).layer_state["lstm/h"].tolist()
    assert read_server_state(path) is None
