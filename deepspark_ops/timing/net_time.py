"""A net's layers by their times: the net is built, fed with made-up samples, and run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from caffe_import.errors import CaffeImportError
from caffe_import.files.prototxt import read_net
from caffe_import.net.fillers import initial_vector
from caffe_import.net.layer_registry import Phase, Shape
from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.net.phases import filter_layers
from caffe_import.proto import caffe_pb2
from deepspark_ops.config.net_time import NetTimeConfig
from deepspark_ops.devices.host_cores import host_cores
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.evaluate.trained_net import set_batch_size
from deepspark_ops.train.data.data_binding import FED_BY_COLUMN, READS_FILES, DataBinding

if TYPE_CHECKING:
    from caffe_import.tf_graph.layer_times import NetTimes

_SEED = 1


@dataclass(frozen=True)
class NetTime:
    """The times of a net.

    Attributes:
        name: The net's own name, else its file's.
        batch_size: Samples of a pass.
        n_threads: Threads of a kernel.
        times: What was measured.
    """

    name: str
    batch_size: int
    n_threads: int
    times: NetTimes


def time_net(config: NetTimeConfig) -> NetTime:
    """Run a net's passes and return its times. TensorFlow is loaded into this process.

    Samples are random numbers, labels zeros and parameters what their fillers give: kernels take the same time for any.

    Raises:
        CaffeImportError: The net cannot be read, built or computed.
        ConfigError: It is not known what its data layers read.
    """
    from caffe_import.tf_graph.builder import fed_blobs  # so that --help needs no TensorFlow
    from caffe_import.tf_graph.layer_times import measure_layers

    net = _build(config)
    n_threads = config.threads or host_cores()
    times = measure_layers(
        net,
        initial_vector(net, _SEED),
        _samples(fed_blobs(net)),
        n_threads=n_threads,
        n_passes=config.iterations,
    )
    batches = [shape[0] for shape in net.inputs.values() if shape]
    return NetTime(net.name or config.net.stem, batches[0] if batches else 1, n_threads, times)


def _build(config: NetTimeConfig) -> NetSpec:
    phase: Phase = "TRAIN" if config.phase == "train" else "TEST"
    message = filter_layers(read_net(config.net), phase=phase)
    if config.batch_size is not None:
        for layer in message.layer:
            if layer.type in (*READS_FILES, *FED_BY_COLUMN, "Input"):
                set_batch_size(layer, config.batch_size)
    with closing(DataBinding(None, Path.cwd())) as binding:

        def sample_shapes(layer: caffe_pb2.LayerParameter) -> tuple[Shape, ...]:
            if config.sample_shape is not None:
                shape = tuple(int(extent) for extent in config.sample_shape.split("x"))
                return (shape, *[()] * (len(layer.top) - 1))
            try:
                return binding.sample_shapes(phase, layer)
            except (CaffeImportError, DataError) as error:
                msg = f"{error}; or say what it reads: sample_shape, e.g. 3x32x32"
                raise ConfigError(msg) from error

        return build_net_spec(message, phase=phase, sample_shapes=sample_shapes)


def _samples(blobs: Mapping[str, Shape]) -> dict[str, npt.NDArray[np.float32]]:
    generator = np.random.default_rng(_SEED)
    made: dict[str, npt.NDArray[Any]] = {
        blob: generator.random(shape, np.float32) if len(shape) > 1 else np.zeros(shape, np.float32)
        for blob, shape in blobs.items()
    }
    return made
