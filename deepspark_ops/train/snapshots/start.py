"""The start of a run: the run's last snapshot, a Caffe solverstate, weights, or fillers, in this order."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from caffe_import.file_access.whole_file import remove_unfinished
from caffe_import.files.caffemodel import copy_weights, read_caffemodel
from caffe_import.net.initial_vector import initial_vector
from caffe_import.net.param_layout import Vector
from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.rounds.solver_step import CenterSolver
from deepspark_ops.exchange.settings import ExchangeSettings
from deepspark_ops.exchange.state.grants import Schedule
from deepspark_ops.train.setup.run import PreparedRun, Run
from deepspark_ops.train.setup.strategy_plan import plan_strategy
from deepspark_ops.train.snapshots.snapshot import check_history, last_state, load_center, load_solverstate
from deepspark_ops.train.snapshots.state_file import (
    RunState,
    read_run_state,
    read_server_state,
    read_worker_state,
    write_run_state,
)

SPARK_SCRATCH = "spark"
"""Folder in the run's scratch that Spark writes to."""


@dataclass(frozen=True)
class Start:
    """The start of a run.

    Attributes:
        clock: First minibatch.
        origin: Clock at which the run first began; not 0 after a Caffe solverstate.
        center: Parameters, shape (n_params,), float32; the caller's.
        state: ``state.h5`` with the workers' states; None if the workers begin with empty states.
        run_state: The run's part of this file; None without the file.
        notes: Lines on the choice, for the log.
    """

    clock: int
    origin: int
    center: Vector
    state: Path | None
    run_state: RunState | None
    notes: tuple[str, ...]


def plan_start(run: Run) -> Start:
    """Return the start of the run.

    The scratch and unfinished snapshots of an earlier life are removed. A retry goes on from the run's ``state.h5``. A
    Caffe solverstate gives iteration and history to every worker, with data from the first row, as in Caffe. Weights
    count only without these files.

    Raises:
        ConfigError: Options that exclude each other, or a snapshot of another net.
        WeightsError: A damaged file, or a file of another net.
    """
    _clear_scratch(run.paths.work)
    remove_unfinished(run.paths.snapshots)
    state_path = last_state(run.paths)
    if state_path is not None:
        return _from_own_state(run, state_path)
    if run.config.resume is not None:
        return _from_solverstate(run, run.config.resume)
    return _from_weights(run, run.config.weights or [Path(path) for path in run.weights])


def _clear_scratch(work: Path) -> None:
    """Remove the files of an earlier life, but not Spark's folder, which may belong to this life."""
    for path in work.glob("*"):
        if path.is_dir() and path.name != SPARK_SCRATCH:
            shutil.rmtree(path)
        elif path.is_file():
            path.unlink()


def start_file(run: Run) -> Path:
    """Return the path where ``plan_start`` writes the workers' state after a Caffe solverstate."""
    return run.paths.work / "start.state.h5"


def _from_own_state(run: Run, path: Path) -> Start:
    state = read_run_state(path)
    center = load_center(path, state, run.train_net)
    notes = [f"going on from {path.name}: clock {state.clock}"]
    saved, n_workers = len(state.workers), run.config.n_workers
    if saved != n_workers:
        notes.append(
            f"{saved} workers were saved, {n_workers} run now: worker i takes the history of worker i mod {saved}"
        )
    if run.config.weights or run.config.resume:
        notes.append("weights and resume are not looked at: the run has a snapshot of its own")
    return Start(state.clock, state.origin, center, path, state, tuple(notes))


def _from_solverstate(run: Run, path: Path) -> Start:
    layout = run.train_net.params
    caffe, workers = load_solverstate(path, layout)
    learned = _learned_net(path, caffe.learned_net)
    center = np.zeros(layout.n_params, np.float32)
    copy_weights(run.train_net, center, read_caffemodel(learned, net=run.train_net), where=str(learned))
    state = RunState(
        caffe.iteration,
        caffe.iteration,
        layout.n_params,
        run.random_seed,
        workers=(0,),
        current_step=caffe.current_step,
    )
    target = start_file(run)
    write_run_state(target, state, {0: workers})
    notes = [f"going on from {path}: iteration {caffe.iteration}, weights {learned}, data from the first row, as Caffe"]
    if run.weights:
        notes.append(f"weights that the solver names are not looked at, as in Caffe: {', '.join(run.weights)}")
    return Start(caffe.iteration, caffe.iteration, center, target, None, tuple(notes))


def _learned_net(path: Path, written: str) -> Path:
    """Return the weights named by a solverstate: the path as written (Caffe), else the name in the state's folder."""
    candidates = (Path(written), path.parent / written, path.parent / Path(written).name)
    for candidate in candidates:
        if written and candidate.is_file():
            return candidate
    msg = f'resume={path}: its learned_net "{written}" is neither there nor beside it; put the .caffemodel there'
    raise ConfigError(msg)


def _from_weights(run: Run, files: Sequence[Path]) -> Start:
    """Fill the net, then copy the files in order, so that a later file overrides (Caffe's LoadNetWeights)."""
    net = run.train_net
    center = initial_vector(net, run.random_seed)
    notes = [] if files else [f"weights from fillers, random_seed {run.random_seed}"]
    for path in files:
        if not path.is_file():
            msg = f"weights={path}: no such file"
            raise ConfigError(msg)
        blobs = read_caffemodel(path, net=net)
        layers = {layer for layer, _ in net.params.uses}
        if not layers & {name for name, arrays in blobs.items() if arrays}:
            held = ", ".join(f'"{name}"' for name, arrays in blobs.items() if arrays) or "none"
            msg = (
                f"weights={path}: holds none of the net's layers; the net has"
                f" {', '.join(f'{chr(34)}{name}{chr(34)}' for name in sorted(layers))}, the file {held};"
                " is it the file of another net?"
            )
            raise ConfigError(msg)
        notes += [f"weights from {path}", *copy_weights(net, center, blobs, where=str(path))]
    return Start(0, 0, center, None, None, tuple(notes))


def with_restored_step(run: Run, state: Path | None) -> Run:
    """Return the run with the rate policy's counter of the ``state.h5`` at the start.

    Raises:
        DataError: The file cannot be read.
    """
    if state is None:
        return run
    saved = read_run_state(state)
    return replace(run, solver=replace(run.solver, restored_step=saved.current_step, restored_at=saved.clock))


def exchange_settings(prepared: PreparedRun, start: Start) -> ExchangeSettings:
    """Return the settings of a run's exchange."""
    run = prepared.run
    config, solver = run.config, run.solver
    plan = plan_strategy(config)
    schedule = Schedule(
        max_iter=solver.max_iter,
        test_interval=solver.test_interval if run.test_nets else 0,
        test_initialization=solver.test_initialization,
        snapshot=solver.snapshot,
        snapshot_after_train=solver.snapshot_after_train,
        first=start.clock,
    )
    return ExchangeSettings(
        run_id=secrets.randbits(64),
        n_params=run.train_net.params.n_params,
        n_workers=config.n_workers,
        schedule=schedule,
        work=run.paths.work,
        events=run.paths.events,
        strategy=config.strategy,
        moving_rate=plan.moving_rate,
        options=plan.options,
        datasets=prepared.orders,
        lease_state=start.run_state.leases if start.run_state is not None else {},
        statistics=run.statistics(),
        solver=CenterSolver.from_spec(solver, run.train_net.params) if plan.running.solves_at_center else None,
        lock=config.lock,
        transport=config.transport,
        wire_dtype=config.wire_dtype,
        n_servers=config.n_servers,
        grant_timeout_s=config.grant_timeout_s,
        exchange_timeout_s=config.exchange_timeout_s,
        check_pushes=config.check_pushes,
    )


def restore_server(start: Start, settings: ExchangeSettings, center: Center) -> list[str]:
    """Write the server's vectors besides the center, if the run goes on from a state. Before any worker joins.

    The vectors are the strategy's, and the solver's history if the server makes the updates.

    Returns:
        Notes for the user on vectors that do not fit.

    Raises:
        ConfigError: The history is of another net or solver.
        DataError: The file cannot be read.
    """
    if start.state is None:
        return []
    strategy = settings.running_strategy()
    server = read_server_state(start.state)
    note = None if server is None else server.restore(center, strategy)
    notes = [] if note is None else [note]
    saved = read_worker_state(start.state, 0) if strategy.history_at_center else None
    if saved is None:
        return notes
    slots = center.extras[strategy.server_vectors :]
    check_history(saved.history.shape, (len(slots), settings.n_params))
    for slot, values in zip(slots, saved.history, strict=True):
        slot[:] = values
    return notes
