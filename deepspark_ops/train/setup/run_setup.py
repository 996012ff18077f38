"""From a TrainConfig to a run's folder and back: the driver writes the folder once, driver and workers read the folder.

The driver resolves solver, nets and sources (``prepare_run``), so that the folder does not depend on the working
directory. ``load_run`` builds the nets from the folder. ``plan_start`` decides where training begins.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from caffe_import.devices.placement_file import format_placement
from caffe_import.files.prototxt import format_message, read_solver
from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.proto import caffe_pb2
from caffe_import.solver.loaded_solver import LoadedSolver, load_solver
from caffe_import.solver.solver_nets import SolverNet, solver_nets
from caffe_import.solver.solver_notes import solver_notes
from caffe_import.solver.solver_spec import solver_spec
from deepspark_ops.config.base import parse_config, with_paths_from
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.devices.compute_plan import compute_plan, precision_note, with_replicas
from deepspark_ops.devices.dealing import with_workers_of_host
from deepspark_ops.devices.device_rows import device_rows, placement_notes
from deepspark_ops.processes.named_files import limit_named_files
from deepspark_ops.processes.stage_process import read_config_file
from deepspark_ops.run_paths import RunPaths, write_text_whole
from deepspark_ops.shards.changed_shards import Stamp
from deepspark_ops.shards.verification import verify_layer_sources
from deepspark_ops.stores.staging import staging, staging_of, use_staging
from deepspark_ops.stores.store_path import DataPath
from deepspark_ops.train.data.data_binding import DataBinding, separate_orders_note
from deepspark_ops.train.data.repeated_data import check_repeatable, leased_by_batches
from deepspark_ops.train.data.sources import SourceResolver
from deepspark_ops.train.host_files.on_host import with_local_means
from deepspark_ops.train.setup.run import PreparedRun, Run
from deepspark_ops.train.setup.run_checks import check_data, check_dataset, check_paths, check_sizes
from deepspark_ops.train.setup.run_dataset import (
    note_dataset,
    noted_stamps,
    stamp_use,
    stamps_of,
    with_its_version,
    with_visible_data,
)
from deepspark_ops.train.setup.side_outputs import check_side_outputs
from deepspark_ops.train.setup.staged_reading import notes_on_staging
from deepspark_ops.train.setup.strategy_plan import plan_strategy, with_strategy

_LOG = logging.getLogger(__name__)

DEFAULT_SEED = 1
"""Seed for a solver without random_seed: Caffe draws a seed then, and no retry could repeat the run."""
_NET_FIELDS = ("net", "net_param", "train_net", "train_net_param", "test_net", "test_net_param")


def read_config(path: Path) -> TrainConfig:
    """Return the TrainConfig of a JSON file.

    Raises:
        ConfigError: The file cannot be read, is no JSON object or has wrong fields.
    """
    return parse_config(TrainConfig, read_config_file(path))


def prepare_run(config: TrainConfig) -> PreparedRun:
    """Check a config without TensorFlow and Spark, then write the run's folder.

    A failed check leaves files: the caller restores the folder (``nothing_left_on_error``).

    Raises:
        ConfigError: An option or a path.
        DataError: Missing or damaged data.
        CaffeImportError: Solver, nets or sources.
    """
    config = with_paths_from(config, Path.cwd())
    use_staging(staging_of(config.staging_folder, config.staging_size))
    check_paths(config)
    outside: list[str] = []
    limit_named_files(config.named_files, _own_folders(config), warn=outside.append)
    loaded = load_solver(config.solver, config.overrides)
    config, counted = with_workers_of_host(config, loaded.spec, os.environ)
    config, chosen = with_strategy(config)
    plan = plan_strategy(config)
    notes = [*filter(None, [counted, chosen]), *plan.warnings]
    if loaded.spec.random_seed < 0:
        notes.append(f"the solver has no random_seed: {DEFAULT_SEED} is used, so that a rerun repeats the run")
    notes += solver_notes(loaded.spec, net_asks_for_debug=loaded.train_net.debug_info)
    paths = RunPaths(config.run_dir)
    newest, config = config.dataset, with_its_version(config, paths)
    if config.dataset != newest:
        _LOG.warning(
            "dataset=%s: has changed since this run began; the run keeps the data of its beginning, %s; to train with"
            " the new data, give another run_dir",
            newest,
            config.dataset,
        )
    stamp_use(config.dataset)
    sources = SourceResolver(config.dataset, config.solver, paths.root / "sources")
    written = solver_nets(loaded, config.solver)
    nets = [sources.resolve(net.message) for net in written]
    files = _net_files(paths, nets)
    solver = _resolved_solver(loaded, paths, list(files))
    stamps = stamps_of(config.dataset)  # before the closer checks: workers notice every change from here on
    sources.write_lists()
    if config.dataset is None:
        verify_layer_sources(nets)
    run = _build(config, paths, replace(loaded, spec=solver_spec(solver)), written, nets)
    if config.dataset is not None:
        check_dataset(config.dataset, run)
    orders = check_data(run)
    notes += notes_on_staging(run, orders)
    notes += filter(None, [separate_orders_note(run.train_layers(), n_workers=config.n_workers)])
    if plan.running.repeats_data:
        notes += check_repeatable(run, config.strategy)
        orders = leased_by_batches(run, orders)
        run.binding.close()
    tests = {f"test_{index}": net for index, net in enumerate(run.test_nets)}
    notes += check_side_outputs({"train": run.train_net, **tests}, paths.outputs)
    for source, built in zip(written, (run.train_net, *run.test_nets), strict=True):
        notes += [text for text, _ in source.shared_memory(built)]
    largest, sizes_notes = check_sizes(run)
    notes += sizes_notes
    rows = device_rows(run.plan, largest, run.solver)
    notes += [*map(str, rows), *placement_notes(rows, run.solver, is_asked=config.placement != "none")]
    notes += filter(None, [precision_note(run.plan, run.train_net)])
    for path, net in files.items():
        write_text_whole(path, format_message(net))
    write_text_whole(paths.solver, format_message(solver))
    _write_config(run, stamps)
    return PreparedRun(run, orders, (*outside, *notes, *sources.notes, *run.train_net.notes))


def _own_folders(config: TrainConfig) -> tuple[DataPath | None, ...]:
    """Return the folders whose files the nets of a run may always name."""
    return config.solver.parent, config.dataset, config.run_dir


def _write_config(run: Run, stamps: Mapping[str, Mapping[str, Stamp]]) -> None:
    """Write the config and the placement, so that all workers of the run have the same placement."""
    config, paths, placement = run.config, run.paths, run.plan.placement
    if placement is None:
        paths.placement.unlink(missing_ok=True)
    else:
        write_text_whole(paths.placement, format_placement(placement, run.train_net))
        config = config.model_copy(update={"placement": paths.placement})
    write_text_whole(paths.config, config.model_dump_json(indent=2))
    note_dataset(config, paths, stamps)


def load_run(run_dir: Path, *, has_driver_files: bool = False) -> Run:
    """Return the run of a folder written by ``prepare_run``, for workers.

    Args:
        run_dir: The run's folder, or a copy.
        has_driver_files: Whether the driver's files can be read (``use_driver_store``), for a host without the dataset.

    Raises:
        ConfigError, DataError, CaffeImportError: The folder or the data have changed.
    """
    paths = RunPaths(run_dir)
    config = read_config(paths.config)
    use_staging(staging_of(config.staging_folder, config.staging_size))
    config = with_visible_data(config, paths) if has_driver_files else with_its_version(config, paths)
    trusted = (*_own_folders(config), paths.root, staging().folder)
    limit_named_files(config.named_files, trusted, warn=lambda finding: None)  # ``prepare_run`` has warned
    loaded = load_run_solver(paths)
    nets = solver_nets(loaded, paths.solver)
    messages = [net.message for net in nets]
    with_local_means(messages, config.dataset)
    return _build(config, paths, loaded, nets, messages, noted_stamps(config, paths))


def load_run_solver(paths: RunPaths) -> LoadedSolver:
    """Return the solver of a run's folder with the nets in the folder, also after a move or in a copy.

    Raises:
        PrototxtError, NetError, ForbiddenPathError: As ``load_solver``.
    """
    written = read_solver(paths.solver)
    nets = caffe_pb2.SolverParameter(test_net=[str(paths.root / Path(net).name) for net in written.test_net])
    for field in ("net", "train_net"):
        if written.HasField(field):
            setattr(nets, field, str(paths.root / Path(getattr(written, field)).name))
    return load_solver(paths.solver, format_message(nets))


def _build(
    config: TrainConfig,
    paths: RunPaths,
    loaded: LoadedSolver,
    written: Sequence[SolverNet],
    resolved: Sequence[caffe_pb2.NetParameter],
    stamps: Mapping[str, Mapping[str, Stamp]] | None = None,
) -> Run:
    """Build the nets: ``resolved`` with absolute paths, ``written`` as in the file, training net first."""
    binding = DataBinding(config.dataset, paths.root, stamps=stamps or {})
    train_net, *test_nets = (_built(net, message, binding) for net, message in zip(written, resolved, strict=True))
    plan = compute_plan(config, train_net, loaded.spec)
    solver = with_replicas(loaded.spec, plan)
    return Run(config, paths, solver, train_net, tuple(test_nets), binding, plan, loaded.weights)


def _built(written: SolverNet, resolved: caffe_pb2.NetParameter, binding: DataBinding) -> NetSpec:
    with written.errors_placed():
        return build_net_spec(
            resolved,
            phase=written.phase,
            level=written.state.level,
            stages=tuple(written.state.stage),
            sample_shapes=partial(binding.sample_shapes, written.phase),
        )


def _net_files(paths: RunPaths, nets: Sequence[caffe_pb2.NetParameter]) -> dict[Path, caffe_pb2.NetParameter]:
    """Return file -> net: only ``net.prototxt`` for equal messages, else the test nets in further files."""
    files = {paths.net: nets[0]}
    if any(net != nets[0] for net in nets[1:]):
        files |= {paths.test_net(index): net for index, net in enumerate(nets[1:])}
    return files


def _resolved_solver(loaded: LoadedSolver, paths: RunPaths, files: Sequence[Path]) -> caffe_pb2.SolverParameter:
    """Return the solver as used, naming the nets' files and the snapshots of the run's own folder."""
    message = caffe_pb2.SolverParameter()
    message.CopyFrom(loaded.spec.message)
    for name in (*_NET_FIELDS, "weights"):
        message.ClearField(name)
    if len(files) == 1:
        message.net = str(files[0])
    else:
        message.train_net = str(files[0])
        message.test_net.extend(str(path) for path in files[1:])
    message.weights.extend(str(Path(path).absolute()) for path in loaded.weights)
    message.snapshot_prefix = str(paths.snapshots / (Path(loaded.spec.snapshot_prefix).name or "snapshot"))
    if message.random_seed < 0:
        message.random_seed = DEFAULT_SEED
    return message
