"""Cases of kind ``snapshot``: a run, Caffe's files from the middle of the run, and both ways to continue."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from caffe_import.file_access.regular_file import regular_bytes, regular_path
from caffe_import.files.caffemodel import copy_weights, read_caffemodel, write_caffemodel
from caffe_import.files.solverstate import (
    SolverState,
    history_blobs,
    history_slots,
    read_solverstate,
    write_solverstate,
)
from caffe_import.net.net_spec import NetSpec
from caffe_import.parity.case import Case, load_archive
from caffe_import.parity.feeds import NetBatches
from caffe_import.parity.findings import Findings, members_under
from caffe_import.parity.net_cases import compare_params, params_of
from caffe_import.parity.solver_cases import (
    compare_reports,
    compiled,
    milestones,
    training_net,
    trajectory,
    trajectory_bound,
)
from caffe_import.proto import caffe_pb2
from caffe_import.solver.loaded_solver import load_solver
from caffe_import.solver.lr_policies import step_counter
from caffe_import.tf_graph.train_step import TrainFunction, TrainState

Array = npt.NDArray[Any]


def run(case: Case, findings: Findings) -> None:
    """Train to the snapshot, compare files, go on without stopping, and again from the files."""
    archive = load_archive(case.file("trajectory.npz"))
    loaded = load_solver(case.file("solver.prototxt"))
    net = training_net(loaded)
    train = compiled(net, loaded, findings)
    start = train.initial_state(params_of(net, members_under(archive, "init")))
    weights, state_file = _snapshot_files(case)
    caffe_state = read_solverstate(state_file)
    with NetBatches(net) as batches:
        at_snapshot = _follow(train, batches, start, 0, archive, "", findings)
        our_state = SolverState(
            iteration=at_snapshot.updates,
            learned_net=_written_name(loaded.spec.snapshot_prefix, weights),
            current_step=step_counter(loaded.spec, at_snapshot.updates),
            history=history_blobs(net.params, at_snapshot.history_view()),
        )
        _compare_state(our_state, caffe_state, trajectory_bound(net, findings.bounds), findings)
        _compare_weights(net, at_snapshot, weights, findings)
        continued = _follow(train, batches, at_snapshot, our_state.iteration, archive, "continued/", findings)
    with NetBatches(net) as batches:
        from_caffe = _restored(train, weights, state_file)
        _follow(train, batches, from_caffe, caffe_state.iteration, archive, "resumed/", findings)
    if bool(archive["resumed_equals_continued"]):
        findings.hold(
            claim=_resumes_exactly(train, at_snapshot, our_state, weights.suffix, continued),
            otherwise="our own files do not continue bit for bit",
        )


def _snapshot_files(case: Case) -> tuple[Path, Path]:
    snapshots = [path for path in map(Path, case.record["files"]) if path.name.startswith("snap_")]
    weights = next(path for path in snapshots if ".caffemodel" in path.name)
    state = next(path for path in snapshots if ".solverstate" in path.name)
    return weights, state


def _written_name(prefix: str, weights: Path) -> str:
    return f"{prefix}_iter_10{''.join(weights.suffixes)}"


def _follow(
    train: TrainFunction,
    batches: NetBatches,
    state: TrainState,
    start: int,
    archive: Mapping[str, Array],
    prefix: str,
    findings: Findings,
) -> TrainState:
    bound = trajectory_bound(train.net, findings.bounds)
    reports = []
    for iteration, reached, report in trajectory(train, batches, state, start, milestones(archive, prefix)):
        member = f"{prefix}iter_{iteration:04d}"
        blobs = members_under(archive, member)
        compare_params(train.net, reached.params_view(), blobs, f"{member}/", bound, findings)
        reports.append(report)
        state = reached
    compare_reports(reports, archive, prefix, bound, findings)
    return state


def _restored(train: TrainFunction, weights: Path, state_file: Path) -> TrainState:
    params = np.zeros(train.net.params.n_params, np.float32)
    copy_weights(train.net, params, read_caffemodel(weights), where=str(weights))
    state = read_solverstate(state_file)
    history = history_slots(train.net.params, state.history, n_slots=train.rule.n_slots, where=str(state_file))
    fresh = train.initial_state(params)
    return TrainState(params, history, fresh.layer_state, state.iteration)


def _compare_state(our_state: SolverState, caffe_state: SolverState, bound: float, findings: Findings) -> None:
    findings.agree("state: iter", our_state.iteration, caffe_state.iteration)
    findings.agree("state: current_step", our_state.current_step, caffe_state.current_step)
    findings.agree("state: learned_net", our_state.learned_net, caffe_state.learned_net)
    findings.agree("state: history blobs", len(our_state.history), len(caffe_state.history))
    for index, (our_blob, their_blob) in enumerate(zip(our_state.history, caffe_state.history, strict=False)):
        findings.compare(f"state: history/{index}", our_blob, their_blob.reshape(our_blob.shape), bound)


def _compare_weights(net: NetSpec, state: TrainState, caffe_file: Path, findings: Findings) -> None:
    loaded = np.zeros(net.params.n_params, np.float32)
    copy_weights(net, loaded, read_caffemodel(caffe_file), where=str(caffe_file))
    findings.compare("caffemodel", np.array(state.params_view()), loaded, trajectory_bound(net, findings.bounds))
    with TemporaryDirectory() as folder:
        our_file = Path(folder) / caffe_file.name
        write_caffemodel(our_file, net, loaded)
        if caffe_file.suffix == ".h5":
            findings.agree("caffemodel.h5", hdf5_content(our_file), hdf5_content(caffe_file))
        else:
            findings.hold(
                claim=read_message(our_file) == read_message(caffe_file),
                otherwise="caffemodel: our file of Caffe's weights is another message than Caffe's",
            )


def read_message(path: Path) -> caffe_pb2.NetParameter:
    """Return a binary caffemodel without upgrades."""
    return caffe_pb2.NetParameter.FromString(regular_bytes(path))


def hdf5_content(path: Path) -> dict[str, object]:
    """Return name -> values (nested lists) of every dataset and name -> None of every group."""
    content: dict[str, object] = {}

    def visit(name: str, item: object) -> None:
        content[name] = item[()].tolist() if isinstance(item, h5py.Dataset) else None

    with h5py.File(regular_path(path), "r") as file:
        file.visititems(visit)
    return content


def _resumes_exactly(
    train: TrainFunction, at_snapshot: TrainState, state: SolverState, suffix: str, continued: TrainState
) -> bool:
    with TemporaryDirectory() as folder:
        suffix = suffix if suffix == ".h5" else ""
        weights, state_file = Path(folder) / f"w.caffemodel{suffix}", Path(folder) / f"s.solverstate{suffix}"
        write_caffemodel(weights, train.net, np.array(at_snapshot.params_view()))
        write_solverstate(state_file, state)
        resumed = _restored(train, weights, state_file)
    with NetBatches(train.net) as batches:
        stops = [state.iteration + 1, continued.updates]
        *_, (_, last, _) = trajectory(train, batches, resumed, state.iteration, stops)
    return np.array_equal(last.params_view(), continued.params_view())
