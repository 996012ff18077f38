"""Size of a solver's training net: parameters, minibatch, operations; the data may be missing."""

from __future__ import annotations

import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from caffe_import.errors import CaffeImportError
from caffe_import.net.layer_registry import Shape
from caffe_import.net.net_spec import build_net_spec
from caffe_import.proto import caffe_pb2
from caffe_import.solver.loaded_solver import load_solver
from caffe_import.solver.solver_nets import solver_nets
from deepspark_ops.config.base import extents_of
from deepspark_ops.config.commands.plan import PlanConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.processes.named_files import limit_named_files
from deepspark_ops.train.data.data_binding import READS_FILES, DataBinding, image_and_label
from deepspark_ops.train.data.sources import SourceResolver

KNOWN_DATA: Final[dict[str, tuple[Shape, int]]] = {
    "cifar": ((3, 32, 32), 50_000),
    "mnist": ((1, 28, 28), 60_000),
    "digits": ((1, 28, 28), 1_438),
    "ilsvrc12": ((3, 256, 256), 1_281_167),
    "imagenet": ((3, 256, 256), 1_281_167),
}
"""Part of a source's path -> shape and number of its training samples, as Caffe's examples and ours store them."""


@dataclass(frozen=True)
class NetSize:
    """A training net.

    Attributes:
        name: Name of the net.
        n_params: Length of the parameter vector.
        images_per_step: Samples of a minibatch: batch_size times iter_size times the devices of a worker.
        step_flops: Operations of a minibatch; the backward pass counts as twice the forward pass.
        epoch_images: Samples of an epoch, None if unknown.
        notes: Assumptions, one line each.
    """

    name: str
    n_params: int
    images_per_step: int
    step_flops: int
    epoch_images: int | None
    notes: tuple[str, ...]


class _Samples:
    """Sample shapes of a net's data layers: from the data, else from the options, else from the source's name."""

    def __init__(self, config: PlanConfig, binding: DataBinding) -> None:
        self._config = config
        self._binding = binding
        self.epoch_images = config.epoch_images
        self.were_read = False
        self.notes: list[str] = []

    def shapes(self, layer: caffe_pb2.LayerParameter) -> tuple[Shape, ...]:
        if self._config.sample_shape is not None:
            return image_and_label(layer, extents_of(self._config.sample_shape))
        try:
            shapes = self._binding.sample_shapes("TRAIN", layer)
        except (DataError, CaffeImportError) as error:
            if self._config.dataset is not None:
                raise
            return self._shapes_by_name(layer, error)
        self.were_read = True
        return shapes

    def _shapes_by_name(self, layer: caffe_pb2.LayerParameter, error: Exception) -> tuple[Shape, ...]:
        source = _source(layer)
        for name, (shape, n_samples) in KNOWN_DATA.items():
            if layer.type in READS_FILES and name in source.lower():
                self.epoch_images = self.epoch_images or n_samples
                extents = "x".join(str(extent) for extent in shape)
                self.notes.append(
                    f'the data of layer "{layer.name}" are not here; by the name "{name}" in their path they are taken'
                    f" to be {n_samples:,} samples of {extents}; for other data give sample_shape and epoch_images, or"
                    " dataset"
                )
                return image_and_label(layer, shape)
        msg = f"{error}; or say what it will read: sample_shape, e.g. 3x32x32, and epoch_images"
        raise ConfigError(msg) from error


def measure_net(config: PlanConfig) -> NetSize:
    """Build the training net for its shapes, without TensorFlow.

    Raises:
        CaffeImportError: The solver or the net cannot be read.
        ConfigError: The shape of the samples is unknown.
        DataError: The dataset is damaged or missing.
    """
    outside: list[str] = []
    with tempfile.TemporaryDirectory(prefix="deepspark-plan-") as scratch:
        trusted_folders = (config.solver.parent, config.dataset)
        limit_named_files(config.named_files, trusted_folders, scratch=Path(scratch), warn=outside.append)
        loaded = load_solver(config.solver, config.overrides)
        sources = SourceResolver(config.dataset, config.solver, Path(scratch))
        resolved = sources.resolve(loaded.train_net)
        sources.write_lists()
        binding = DataBinding(config.dataset, Path.cwd())
        with closing(binding):
            samples = _Samples(config, binding)
            with solver_nets(loaded, config.solver)[0].errors_placed():
                net = build_net_spec(
                    resolved,
                    phase="TRAIN",
                    level=loaded.train_state.level,
                    stages=tuple(loaded.train_state.stage),
                    sample_shapes=samples.shapes,
                )
            epoch_images = samples.epoch_images
            fed = binding.fed_layers(net) if epoch_images is None and samples.were_read else ()
            if fed:  # windows that a layer draws at random have no epochs
                epoch_images = fed[0].samples.n_samples
    passes = loaded.spec.iter_size * config.gpus_per_worker
    return NetSize(
        name=net.name or config.solver.stem,
        n_params=net.params.n_params,
        images_per_step=(net.batch_size or 1) * passes,
        step_flops=3 * passes * sum(layer.definition.flops for layer in net.layers),
        epoch_images=epoch_images,
        notes=tuple(dict.fromkeys([*outside, *samples.notes])),
    )


def _source(layer: caffe_pb2.LayerParameter) -> str:
    return layer.data_param.source or layer.image_data_param.source or layer.hdf5_data_param.source
