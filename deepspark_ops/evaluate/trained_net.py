"""A run's net in phase TEST with trained parameters: what evaluation scores and export ships."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from caffe_import.errors import WeightsError
from caffe_import.file_access.regular_file import regular_bytes
from caffe_import.files.caffemodel import copy_weights, read_caffemodel
from caffe_import.net.batch_size import BuildNet, batch_size_of, net_in_batches, set_batch_size
from caffe_import.net.layer_registry import Phase
from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.net.param_layout import Vector
from caffe_import.net.phases import filter_layers
from caffe_import.proto import caffe_pb2
from caffe_import.solver.loaded_solver import LoadedSolver
from caffe_import.solver.solver_spec import SolverSpec
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.config.shared_options.batch_size import DEFAULT_BATCH_SIZE
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.evaluate.found_weights import Weights, find_weights
from deepspark_ops.evaluate.samples import Samples, scored_layers
from deepspark_ops.processes.named_files import limit_named_files
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.shards.manifest import SplitName
from deepspark_ops.stores.staging import staging, staging_of, use_staging
from deepspark_ops.stores.store_path import DataPath
from deepspark_ops.train.data.data_binding import FED_BY_COLUMN, READS_FILES, DataBinding
from deepspark_ops.train.host_files.on_host import with_local_means
from deepspark_ops.train.setup.run_dataset import with_its_version
from deepspark_ops.train.setup.run_setup import load_run_solver


@dataclass(frozen=True)
class TrainedNet:
    """A net for phase TEST, with parameters and samples.

    Attributes:
        run: The run's folder.
        config: The run's own config.
        solver: The solver as used.
        message: The net's layers in phase TEST.
        net: Built for batches of the asked size.
        params: Parameter vector of ``net``, shape (n_params,), read only.
        weights: Where they come from.
        samples: The data.
        data_name: What the data are called: the dataset's folder, or the first data layer's source.
        with_batch_size: Returns the net built for another batch size; NetError for a size that the net cannot have.
    """

    run: RunPaths
    config: TrainConfig
    solver: SolverSpec
    message: caffe_pb2.NetParameter
    net: NetSpec
    params: Vector
    weights: Weights
    samples: Samples
    data_name: str
    with_batch_size: BuildNet


def open_run(config: EvaluateConfig) -> AbstractContextManager[TrainedNet]:
    """Open the net and the samples of ``config``."""
    return open_trained_net(
        config.run_dir,
        weights=config.weights,
        dataset=config.dataset,
        split=config.split,
        batch_size=config.batch_size,
    )


@contextmanager
def open_trained_net(
    run_dir: Path,
    *,
    weights: Path | None,
    dataset: DataPath | None,
    split: SplitName,
    batch_size: int | None = None,
    default_batch_size: int = DEFAULT_BATCH_SIZE,
) -> Iterator[TrainedNet]:
    """Load a run's net, last snapshot (or ``weights``) and data (or ``dataset``); close the data at the end.

    Without ``batch_size`` a pass has ``default_batch_size`` samples, or the net's own number where it takes no other.

    Raises:
        ConfigError: There is no run, no snapshot, or no such file.
        DataError: The data are missing or damaged.
        CaffeImportError: Net, weights or sources that do not fit together.
    """
    run = RunPaths(run_dir)
    trained_weights = find_weights(run, weights)
    config = read_run_config(run)
    use_staging(staging_of(config.staging_folder, config.staging_size))
    trusted = (config.solver.parent, config.dataset, dataset, run.root, staging().folder)
    limit_named_files(config.named_files, trusted, warn=lambda finding: None)  # the training has warned
    solver = load_run_solver(run)
    message = _test_net(solver)
    dataset = dataset or config.dataset
    with_local_means([message], dataset)
    fed = [layer for layer in message.layer if layer.type in (*READS_FILES, *FED_BY_COLUMN)]
    if split == "train" and dataset is None:
        _read_training_sources(fed, solver)
    if split == "validation" and dataset is None:
        msg = (
            "split=validation: the run reads sources that its net names, which have none; give an ingested dataset"
            " (option dataset), or split=test"
        )
        raise ConfigError(msg)
    single = frozenset(layer.name for layer in fed if batch_size_of(layer) == 1)
    binding = DataBinding(dataset, run.root, split, cache_bytes=0, single=single)  # each sample is read once
    sample_shapes = partial(binding.sample_shapes, "TRAIN" if split == "train" else "TEST")
    try:
        build = partial(build_net_spec, message, phase="TEST", sample_shapes=sample_shapes)
        net = net_in_batches(fed, build, requested=batch_size, default=default_batch_size)
        samples = Samples(scored_layers(binding, net, split))
        name = str(dataset) if dataset else source_of(fed[0])
        params = load_params(net, trained_weights.path)

        def with_batch_size(batch_size: int) -> NetSpec:
            copy = caffe_pb2.NetParameter()
            copy.CopyFrom(message)
            for layer in copy.layer:
                if layer.type in (*READS_FILES, *FED_BY_COLUMN):
                    set_batch_size(layer, batch_size)
            return build_net_spec(copy, phase="TEST", sample_shapes=sample_shapes)

        yield TrainedNet(
            run, config, solver.spec, message, net, params, trained_weights, samples, name, with_batch_size
        )
    finally:
        binding.close()


def read_run_config(run: RunPaths) -> TrainConfig:
    """Return the config of a run's training.

    Raises:
        ConfigError: A damaged config.
    """
    try:
        return with_its_version(TrainConfig.model_validate_json(regular_bytes(run.config)), run)
    except ValueError as error:
        msg = f"{run.config}: not the config of a training run: {error}"
        raise ConfigError(msg) from error


def load_params(net: NetSpec, weights: Path) -> Vector:
    """Return the parameter vector of ``net`` filled by layer name; every layer with parameters must be in the file.

    Raises:
        WeightsError: The file is damaged, lacks a layer, or holds another shape.
    """
    blobs = read_caffemodel(weights, net=net)
    vector = np.zeros(net.params.n_params, np.float32)
    missing = sorted({entry.layer for entry in net.params.entries if not blobs.get(entry.layer)})
    if missing:
        held = ", ".join(f'"{name}"' for name, arrays in blobs.items() if arrays) or "none"
        msg = (
            f'{weights}: no weights for {_quoted(missing)} of net "{net.name}"; layers in the file: {held}; '
            "is it the file of another net?"
        )
        raise WeightsError(msg)
    copy_weights(net, vector, blobs, where=str(weights))
    vector.flags.writeable = False
    return vector


def source_of(layer: caffe_pb2.LayerParameter) -> str:
    """Return the text of the layer's ``source``, empty for layers without a source."""
    sources = {
        "Data": layer.data_param.source,
        "ImageData": layer.image_data_param.source,
        "HDF5Data": layer.hdf5_data_param.source,
    }
    return sources.get(layer.type, "")


def scored_test_net(solver: LoadedSolver) -> int:
    """Return the index of the test net for evaluation: the first with a source that the training net does not read.

    The index is 0 if all test nets read the training data. Caffe's mnist_autoencoder tests on the training data first.
    """
    trained = _sources(_layers(solver.train_net, "TRAIN", solver.train_state))
    tests = zip(solver.test_nets, solver.test_states, strict=True)
    has_other_data = (bool(_sources(_layers(net, "TEST", state)) - trained) for net, state in tests)
    return next((index for index, is_other in enumerate(has_other_data) if is_other), 0)


def _test_net(solver: LoadedSolver) -> caffe_pb2.NetParameter:
    """Return the layers of the scored test net, or of the training net in phase TEST where a solver has no test net."""
    if not solver.test_nets:
        return _layers(solver.train_net, "TEST", solver.train_state)
    index = scored_test_net(solver)
    return _layers(solver.test_nets[index], "TEST", solver.test_states[index])


def _layers(net: caffe_pb2.NetParameter, phase: Phase, state: caffe_pb2.NetState) -> caffe_pb2.NetParameter:
    return filter_layers(net, phase=phase, level=state.level, stages=tuple(state.stage))


def _sources(net: caffe_pb2.NetParameter) -> set[str]:
    return {source_of(layer) for layer in net.layer} - {""}


def _read_training_sources(layers: Sequence[caffe_pb2.LayerParameter], solver: LoadedSolver) -> None:
    """Let the TEST net's data layers read what the training net's layers of the same tops read."""
    train = _layers(solver.train_net, "TRAIN", solver.train_state)
    by_tops = {tuple(layer.top): layer for layer in train.layer if layer.type in READS_FILES}
    for layer in layers:
        source = by_tops.get(tuple(layer.top))
        if source is None:
            tops = ", ".join(layer.top)
            msg = f'split=train: no data layer of the training net has the tops of layer "{layer.name}" ({tops})'
            raise ConfigError(msg)
        layer.type = source.type
        layer.data_param.CopyFrom(source.data_param)
        layer.image_data_param.CopyFrom(source.image_data_param)
        layer.hdf5_data_param.CopyFrom(source.hdf5_data_param)


def _quoted(names: Sequence[str]) -> str:
    return ("layer " if len(names) == 1 else "layers ") + ", ".join(f'"{name}"' for name in names)
