"""Snapshots: the driver assembles files for Caffe and for a retry; a worker takes its state back.

``<prefix>_iter_N.caffemodel`` and ``.solverstate`` are Caffe's. ``<prefix>_iter_N.state.h5`` is written last: a
snapshot with this file is whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from caffe_import.file_access.regular_file import regular_path, regular_text
from caffe_import.files.caffemodel import copy_weights, read_caffemodel, write_caffemodel
from caffe_import.files.solverstate import (
    SolverState,
    history_blobs,
    history_slots,
    read_solverstate,
    write_solverstate,
)
from caffe_import.net.net_spec import NetSpec
from caffe_import.net.param_layout import ParamLayout, Vector
from caffe_import.solver.lr_policies import step_counter
from caffe_import.solver.solver_spec import SolverSpec
from deepspark_ops.errors import ConfigError, TrainingFailed
from deepspark_ops.exchange.state.pending_snapshot import PendingSnapshot
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.train.snapshots.state_file import RunState, write_run_state
from deepspark_ops.train.snapshots.worker_state import WorkerState

UNCHANGED = "training changed no weight: base_lr or every lr_mult is 0, or no worker's exchange reached the center"


def vector_digest(vector: Vector) -> str:
    """Return the SHA-256 of a parameter vector's bytes."""
    return hashlib.sha256(np.ascontiguousarray(vector).data).hexdigest()


@dataclass(frozen=True)
class Snapshot:
    """A finished snapshot's files."""

    iteration: int
    weights: Path
    solverstate: Path
    state: Path


class GatheredStates(Mapping[int, WorkerState]):
    """The workers' states of a pending snapshot, ascending; each access reads a state from the state's file."""

    def __init__(self, pending: PendingSnapshot, metas: Mapping[str, Any], history: Vector | None) -> None:
        """Take the parts; a ``history`` is the center's and takes the place of the workers' histories."""
        self._pending = pending
        self._metas = {int(worker): metas[worker] for worker in sorted(metas, key=int)}
        self._history = history

    def __getitem__(self, worker: int) -> WorkerState:
        state = WorkerState.from_parts(self._metas[worker], _load_arrays(self._pending.arrays(worker)))
        return state if self._history is None else replace(state, history=self._history)

    def __iter__(self) -> Iterator[int]:
        return iter(self._metas)

    def __len__(self) -> int:
        return len(self._metas)


@dataclass(frozen=True)
class SnapshotWriter:
    """Assembles snapshots of a run on the driver.

    Attributes:
        paths: The run's folder.
        prefix: First part of the files' names.
        net: The training net.
        solver: Has the format and the rate policy.
        origin: As in ``RunState``.
        random_seed: As in ``RunState``.
        start_digest: ``vector_digest`` of the parameters at the start of this life of the run.
        unchanged: Message to the user for unchanged parameters.
        moves_late: Whether the parameters may be unchanged at any snapshot but the last.
    """

    paths: RunPaths
    prefix: str
    net: NetSpec
    solver: SolverSpec
    origin: int
    random_seed: int
    start_digest: str = ""
    unchanged: str = UNCHANGED
    moves_late: bool = False

    def is_pending(self, iteration: int) -> bool:
        """Return whether the exchange has gathered every part of snapshot ``iteration``."""
        return PendingSnapshot(self.paths.work, iteration).complete.is_file()

    def assemble(self, iteration: int) -> Snapshot:
        """Write the snapshot's files, whole or not at all, and remove the gathered parts.

        The solverstate holds the center's history, or the history of the live worker with the lowest id; without
        workers, zeros.

        Raises:
            TrainingFailed: The center has taken exchanges and equals the start, bit for bit: a retry must not find a
                result here.
        """
        pending = PendingSnapshot(self.paths.work, iteration)
        gathered = json.loads(regular_text(pending.complete))
        snapshot = self._files(iteration)
        n_params = self._write_weights(snapshot, pending, may_be_start=gathered["applied"] == 0)
        workers = GatheredStates(pending, gathered["workers"], _load_history(pending.history, n_params))
        write_solverstate(snapshot.solverstate, self._solver_state(snapshot, workers))
        state = RunState(
            clock=iteration,
            origin=self.origin,
            n_params=self.net.params.n_params,
            random_seed=self.random_seed,
            weights=snapshot.weights.name,
            workers=tuple(workers),
            leases=gathered["leases"],
            current_step=step_counter(self.solver, iteration),
        )
        write_run_state(snapshot.state, state, workers, pending.server_state())
        pending.remove()
        return snapshot

    def _write_weights(self, snapshot: Snapshot, pending: PendingSnapshot, *, may_be_start: bool) -> int:
        """Write the center for Caffe; return the number of parameters."""
        center = np.fromfile(regular_path(pending.center), np.float32)
        may_be_start = may_be_start or (self.moves_late and snapshot.iteration < self.solver.max_iter)
        if not may_be_start and vector_digest(center) == self.start_digest:
            raise TrainingFailed(self.unchanged)
        write_caffemodel(snapshot.weights, self.net, center)
        return center.size

    def _files(self, iteration: int) -> Snapshot:
        suffix = ".h5" if self.solver.snapshot_format == "HDF5" else ""
        name = self.paths.snapshot
        return Snapshot(
            iteration,
            name(self.prefix, iteration, f"caffemodel{suffix}"),
            name(self.prefix, iteration, f"solverstate{suffix}"),
            name(self.prefix, iteration, "state.h5"),
        )

    def _solver_state(self, snapshot: Snapshot, workers: Mapping[int, WorkerState]) -> SolverState:
        zeros = np.zeros((1, self.net.params.n_params), np.float32)
        history = next(iter(workers.values())).history if workers else zeros
        return SolverState(
            iteration=snapshot.iteration,
            learned_net=str(snapshot.weights),
            current_step=step_counter(self.solver, snapshot.iteration),
            history=history_blobs(self.net.params, history),
        )


def _load_history(path: Path, n_params: int) -> Vector | None:
    """Return the center's history, (n_slots, n_params); None if each worker has a history."""
    return np.fromfile(regular_path(path), np.float32).reshape(-1, n_params) if path.is_file() else None


def check_history(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Refuse a solver's history of another shape than (n_slots, n_params) of the run.

    Raises:
        ConfigError: Names both shapes.
    """
    if shape != expected:
        msg = (
            f"saved solver history has shape {shape} (slots, parameters), this solver and net need {expected};"
            " go on with the solver type that the state was saved with"
        )
        raise ConfigError(msg)


def _load_arrays(path: Path) -> dict[str, Any]:
    with np.load(regular_path(path), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def last_state(paths: RunPaths) -> Path | None:
    """Return the ``state.h5`` of the run's last whole snapshot."""
    iterations = paths.snapshot_iterations()
    if not iterations:
        return None
    return max(paths.snapshots.glob(f"*_iter_{iterations[-1]}.state.h5"), key=lambda path: path.stat().st_mtime)


def load_center(state_path: Path, state: RunState, net: NetSpec) -> Vector:
    """Return the parameters of a snapshot of our own, shape (n_params,).

    Raises:
        ConfigError: The snapshot is of another net.
        WeightsError: The snapshot's weights are damaged.
    """
    if state.n_params != net.params.n_params:
        msg = (
            f"{state_path}: state of a net with {state.n_params:,} parameters, this one has {net.params.n_params:,};"
            " give another run_dir, or the net that this run was begun with"
        )
        raise ConfigError(msg)
    weights = state_path.parent / state.weights
    vector = np.zeros(net.params.n_params, np.float32)
    copy_weights(net, vector, read_caffemodel(weights, net=net), where=str(weights))
    return vector


def load_solverstate(path: Path, layout: ParamLayout) -> tuple[SolverState, WorkerState]:
    """Return a Caffe solverstate and every worker's state from the file.

    Adam's t goes on from the restored iteration, as in Caffe; data begin at the first row again.

    Raises:
        WeightsError: The file is damaged or does not fit the net.
    """
    state = read_solverstate(path, layout=layout)
    return state, WorkerState(history_slots(layout, state.history), {}, state.iteration)
