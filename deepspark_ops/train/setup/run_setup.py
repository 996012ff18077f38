"""From a TrainConfig to a run's folder and back: what the driver writes once, driver and workers read the same way.

The driver resolves solver, nets and sources (``prepare_run``), so that nothing in the folder depends on the working
directory any more; ``load_run`` builds the nets from the folder; ``plan_start`` decides where training begins.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from caffe_import.files.prototxt import format_message
from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.proto import caffe_pb2
from caffe_import.solver.loaded_solver import LoadedSolver, load_solver
from caffe_import.solver.solver_nets import SolverNet, solver_nets
from caffe_import.solver.solver_notes import solver_notes
from caffe_import.solver.solver_spec import SolverSpec, solver_spec
from deepspark_ops.config.base import parse_config, with_paths_from
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.state.leases import DatasetOrder
from deepspark_ops.run_paths import DatasetPaths, RunPaths, write_text_whole, write_whole
from deepspark_ops.shards.reader import verify, verify_layer_sources
from deepspark_ops.train.data.batches import DrawnLayer, FedLayer, NetFeed
from deepspark_ops.train.data.data_binding import DataBinding, dataset_orders
from deepspark_ops.train.data.repeated_data import check_repeatable, leased_by_batches
from deepspark_ops.train.data.sources import SourceResolver
from deepspark_ops.train.setup.side_outputs import check_side_outputs
from deepspark_ops.train.setup.strategy_plan import plan_strategy

DEFAULT_SEED = 1
"""Of runs whose solver has no random_seed: Caffe draws one then, which no retry could repeat."""
_NET_FIELDS = ("net", "net_param", "train_net", "train_net_param", "test_net", "test_net_param")


@dataclass(frozen=True)
class Run:
    """A run as its folder describes it. Close ``binding`` when done.

    Attributes:
        config: Its config, paths absolute.
        paths: Its folder.
        solver: The solver as used.
        train_net: Built for phase TRAIN.
        test_nets: Built for phase TEST, one per test net.
        binding: Opens the nets' data.
        weights: Files that the solver itself names to start from.
    """

    config: TrainConfig
    paths: RunPaths
    solver: SolverSpec
    train_net: NetSpec
    test_nets: tuple[NetSpec, ...]
    binding: DataBinding
    weights: tuple[str, ...] = ()

    @property
    def prefix(self) -> str:
        """First part of snapshot names: Caffe's snapshot_prefix without its folders."""
        return Path(self.solver.snapshot_prefix).name

    @property
    def random_seed(self) -> int:
        """Seed of fillers, shuffling and random draws."""
        return self.solver.random_seed

    def train_layers(self) -> tuple[FedLayer, ...]:
        """Return the training net's fed layers."""
        return self.binding.fed_layers(self.train_net)

    def test_layers(self) -> tuple[tuple[FedLayer, ...], ...]:
        """Return each test net's fed layers."""
        return tuple(self.binding.fed_layers(net) for net in self.test_nets)

    def train_drawn(self) -> tuple[DrawnLayer, ...]:
        """Return the training net's data layers that draw at random."""
        return self.binding.drawn_layers(self.train_net)

    def test_feeds(self) -> tuple[NetFeed, ...]:
        """Return the data of each test net."""
        parts = zip(self.test_nets, self.test_layers(), self.solver.test_iter, strict=True)
        return tuple(NetFeed(layers, n_batches, self.binding.drawn_layers(net)) for net, layers, n_batches in parts)

    def images_per_step(self) -> int:
        """Return the samples of one minibatch: batch_size of the first data layer, times iter_size."""
        batches = [shape[0] for shape in self.train_net.inputs.values() if shape]
        return (batches[0] if batches else 1) * self.solver.iter_size


@dataclass(frozen=True)
class PreparedRun:
    """What preparing found, besides the run itself.

    Attributes:
        run: The run.
        orders: Stream -> how the exchange leases its samples.
        notes: What the user should know, one line each.
    """

    run: Run
    orders: Mapping[str, DatasetOrder]
    notes: tuple[str, ...]


def read_config(path: Path) -> TrainConfig:
    """Return the TrainConfig of a JSON file.

    Raises:
        ConfigError: The file cannot be read, is no JSON object or has wrong fields.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        msg = f"config {path}: {error}"
        raise ConfigError(msg) from error
    if not isinstance(values, dict):
        msg = f"config {path}: holds a {type(values).__name__}; expected a JSON object with the fields of TrainConfig"
        raise ConfigError(msg)
    return parse_config(TrainConfig, values)


def prepare_run(config: TrainConfig) -> PreparedRun:
    """Check a config as far as it can be without TensorFlow and Spark, then write the run's folder.

    What was written is removed again if a check fails.

    Raises:
        ConfigError: An option or a path.
        DataError: Missing or damaged data.
        CaffeImportError: Solver, nets or sources.
    """
    config = with_paths_from(config, Path.cwd())
    _check_paths(config)
    loaded = load_solver(config.solver, config.overrides)
    plan = plan_strategy(config)
    notes = list(plan.warnings)
    if loaded.spec.random_seed < 0:
        notes.append(f"the solver has no random_seed: {DEFAULT_SEED} is used, so that a rerun repeats the run")
    notes += solver_notes(loaded.spec, net_asks_for_debug=loaded.train_net.debug_info)
    paths = RunPaths(config.run_dir)
    sources = SourceResolver(config.dataset, config.solver, paths.root / "sources")
    written = solver_nets(loaded, config.solver)
    nets = [sources.resolve(net.message) for net in written]
    files = _net_files(paths, nets)
    solver = _resolved_solver(loaded, paths, list(files))
    with nothing_left_on_error(paths.root):
        sources.write_lists()
        if config.dataset is None:
            verify_layer_sources(nets)
        run = _build(config, paths, replace(loaded, spec=solver_spec(solver)), written, nets)
        if config.dataset is not None:
            _check_dataset(config.dataset, run, digests=_DIGESTS[config.verify])
        orders = _check_data(run)
        if plan.running.repeats_data:
            notes += check_repeatable(run, config.strategy)
            orders = leased_by_batches(run, orders)
            run.binding.close()
        tests = {f"test_{index}": net for index, net in enumerate(run.test_nets)}
        notes += check_side_outputs({"train": run.train_net, **tests})
        for source, built in zip(written, (run.train_net, *run.test_nets), strict=True):
            notes += [text for text, _ in source.shared_memory(built)]
        for path, net in files.items():
            write_text_whole(path, format_message(net))
        write_text_whole(paths.solver, format_message(solver))
        write_text_whole(paths.config, config.model_dump_json(indent=2))
    return PreparedRun(run, orders, (*notes, *sources.notes, *run.train_net.notes))


def load_run(run_dir: Path) -> Run:
    """Return the run of a folder that ``prepare_run`` wrote; what workers call.

    Raises:
        ConfigError, DataError, CaffeImportError: The folder or the data are not what they were.
    """
    paths = RunPaths(run_dir)
    loaded = load_solver(paths.solver)
    nets = solver_nets(loaded, paths.solver)
    return _build(read_config(paths.config), paths, loaded, nets, [net.message for net in nets])


def _build(
    config: TrainConfig,
    paths: RunPaths,
    loaded: LoadedSolver,
    written: Sequence[SolverNet],
    resolved: Sequence[caffe_pb2.NetParameter],
) -> Run:
    """Build the nets: ``resolved`` with absolute paths, ``written`` as the file has them, training net first."""
    binding = DataBinding(config.dataset, paths.root)
    train_net, *test_nets = (_built(net, message, binding) for net, message in zip(written, resolved, strict=True))
    return Run(config, paths, loaded.spec, train_net, tuple(test_nets), binding, loaded.weights)


def _built(written: SolverNet, resolved: caffe_pb2.NetParameter, binding: DataBinding) -> NetSpec:
    with written.errors_placed():
        return build_net_spec(
            resolved,
            phase=written.phase,
            level=written.state.level,
            stages=tuple(written.state.stage),
            sample_shapes=partial(binding.sample_shapes, written.phase),
        )


def _check_paths(config: TrainConfig) -> None:
    for path in config.weights or ():
        if not path.is_file():
            msg = f"weights={path}: no such file"
            raise ConfigError(msg)
    if config.resume is not None and not config.resume.is_file():
        msg = f"resume={config.resume}: no such file"
        raise ConfigError(msg)
    if config.dataset is not None and not config.dataset.is_dir():
        msg = f'dataset={config.dataset}: no such folder; run "deepspark ingest" first, or give its --output'
        raise ConfigError(msg)
    if config.run_dir.exists() and not config.run_dir.is_dir():
        msg = f"run_dir={config.run_dir}: is a file; a folder is needed"
        raise ConfigError(msg)


_DIGESTS: Final[Mapping[str, bool | None]] = {"auto": None, "digests": True, "sizes": False}


def _check_dataset(dataset: Path, run: Run, *, digests: bool | None) -> None:
    """Compare the splits that the run reads with their manifests: a damaged page would kill the process that reads it.

    Raises:
        DataError: The first difference.
    """
    for split in ("train", "test") if run.test_nets else ("train",):
        verify(DatasetPaths(dataset).split(split), digests=digests)


def _check_data(run: Run) -> dict[str, DatasetOrder]:
    """Open every data layer once; return how the training data are leased."""
    try:
        layers = run.train_layers()
        for fed in (layers, *run.test_layers()):
            for layer in fed:
                _check_classes(layer, run.config.dataset)
        for net in (run.train_net, *run.test_nets):
            run.binding.drawn_layers(net)
        config = run.config
        return dataset_orders(
            run.train_net, layers, order=config.order, n_workers=config.n_workers, seed=run.random_seed
        )
    finally:
        run.binding.close()


def _check_classes(fed: FedLayer, dataset: Path | None) -> None:
    """Compare the dataset's classes with those of the layers that read its labels, without reading a sample."""
    manifest = fed.samples.dataset.manifest
    if manifest is None:
        return
    for user in (column.user for column in fed.labels):
        # An ignored label need not be a class, but the dataset counts it.
        n_scores = user.labels.n_classes
        if manifest.n_classes > n_scores and user.labels.ignore_label is None:
            msg = (
                f'layer "{user.layer}": bottom "{user.scores}" has {n_scores} scores per sample, the dataset'
                f" {dataset} has {manifest.n_classes} classes; give the net as many outputs as classes"
            )
            raise ConfigError(msg)


def _net_files(paths: RunPaths, nets: Sequence[caffe_pb2.NetParameter]) -> dict[Path, caffe_pb2.NetParameter]:
    """Return file -> net: ``net.prototxt`` alone where all are one message, else the test nets beside it."""
    files = {paths.net: nets[0]}
    if any(net != nets[0] for net in nets[1:]):
        files |= {paths.root / f"test_net_{index}.prototxt": net for index, net in enumerate(nets[1:])}
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


@contextmanager
def nothing_left_on_error(root: Path) -> Iterator[Callable[[], None]]:
    """Leave a run's folder as it was if the block fails: what it added goes, what it wrote over comes back.

    Yields:
        Call it once the run has begun; from then on everything stays.
    """
    there = {path.name for path in root.iterdir()} if root.is_dir() else set()
    was_there = root.is_dir()
    kept = {path: path.read_bytes() for pattern in _OWN_FILES for path in root.glob(pattern)}
    began: list[bool] = []
    try:
        yield lambda: began.append(True)
    except BaseException:
        if not began:
            _put_back(root, there if was_there else None, kept)
        raise


_OWN_FILES = ("*.json", "*.prototxt", "sources/*")
"""What preparing a run writes."""


def _put_back(root: Path, there: Collection[str] | None, kept: Mapping[Path, bytes]) -> None:
    if there is None:
        shutil.rmtree(root, ignore_errors=True)
        return
    for path in list(root.iterdir()):
        if path.name not in there:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    for path, content in kept.items():
        if not path.is_file() or path.read_bytes() != content:
            with write_whole(path) as temporary:
                temporary.write_bytes(content)
