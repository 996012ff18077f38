"""Times of a net's layers, measured on random samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from caffe_import.net.initial_vector import initial_vector
from caffe_import.net.layer_registry import Phase, Shape
from deepspark_ops.config.base import extents_of
from deepspark_ops.config.commands.single_net import NetTimeConfig
from deepspark_ops.devices.host_cores import host_cores
from deepspark_ops.single_net.net_file import opened_net

if TYPE_CHECKING:
    from caffe_import.tf_graph.layer_times import NetTimes

_SEED = 1


@dataclass(frozen=True)
class NetTime:
    """The times of a net.

    Attributes:
        name: Name of the net, else of its file.
        batch_size: Samples of a pass.
        n_threads: Threads of a kernel.
        times: Measured times.
    """

    name: str
    batch_size: int
    n_threads: int
    times: NetTimes


def time_net(config: NetTimeConfig) -> NetTime:
    """Run a net's passes and return its times. TensorFlow is loaded into this process.

    Samples are random numbers, labels zeros, and fillers initialise the parameters: the values do not change the times.

    Raises:
        CaffeImportError: The net cannot be read, built or computed.
        ConfigError: The data of the data layers are unknown.
    """
    from caffe_import.tf_graph.builder import fed_blobs  # so that --help needs no TensorFlow
    from caffe_import.tf_graph.layer_times import measure_layers

    shape = None if config.sample_shape is None else extents_of(config.sample_shape)
    phase: Phase = "TRAIN" if config.phase == "train" else "TEST"
    n_threads = config.threads or host_cores()
    with opened_net(
        config.net,
        phase=phase,
        named_files=config.named_files,
        without_data="or say what it reads: sample_shape, e.g. 3x32x32",
        batch_size=config.batch_size,
        sample_shape=shape,
    ) as opened:
        times = measure_layers(
            opened.net,
            initial_vector(opened.net, _SEED),
            _samples(fed_blobs(opened.net)),
            n_threads=n_threads,
            n_passes=config.iterations,
        )
        return NetTime(opened.name, opened.batch_size, n_threads, times)


def _samples(blobs: Mapping[str, Shape]) -> dict[str, npt.NDArray[np.float32]]:
    generator = np.random.default_rng(_SEED)
    return {
        blob: generator.random(shape, np.float32) if len(shape) > 1 else np.zeros(shape, np.float32)
        for blob, shape in blobs.items()
    }
