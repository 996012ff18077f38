"""A trained net's answers, batch by batch. This file alone of the stage imports TensorFlow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from caffe_import.net.net_spec import NetSpec
from caffe_import.net.param_layout import Vector
from caffe_import.proto import caffe_pb2
from caffe_import.solver.solver_spec import SolverSpec
from caffe_import.tf_graph import tensorflow as tf
from caffe_import.tf_graph.devices import ReadyDevices, kind_of_option, set_up_devices
from caffe_import.tf_graph.predict import compile_fixed_forward, compile_forward
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.evaluate.scoring import Answer
from deepspark_ops.evaluate.tasks.answers import activated, wanted_blobs
from deepspark_ops.evaluate.tasks.choice import ChosenTask
from deepspark_ops.evaluate.trained_net import TrainedNet
from deepspark_ops.processes.batch_passes import passes_at_once

_log = logging.getLogger(__name__)

Feeds = Mapping[str, npt.NDArray[np.float32]]
Answers = Callable[[Feeds], dict[str, npt.NDArray[Any]]]
"""Takes the data layers' blobs, full batches; returns blob -> (batch_size, ...)."""


def scoring_device(devices: Literal["auto", "cpu", "gpu"], solver: SolverSpec, *, n_threads: int) -> ReadyDevices:
    """Set up the device for scoring, TensorFlow's first GPU or the CPU; ``auto``: as the solver's ``solver_mode`` says.

    Raises:
        DeviceError: ``gpu``, and TensorFlow sees none.
    """
    if devices == "auto" and solver.message.solver_mode != caffe_pb2.SolverParameter.GPU:
        devices = "cpu"
    return set_up_devices(kind_of_option(devices), 1, n_threads=n_threads)


@dataclass(frozen=True)
class ReadyNet:
    """A net ready for answers.

    Attributes:
        answers: Gives its results.
        device: What it runs on, in words.
        n_at_once: Batches that it may answer at the same time, by threads.
    """

    answers: Answers
    device: str
    n_at_once: int

    @property
    def answer(self) -> Answer:
        """The net's answers without the rows that fill a batch up."""
        return Answer(
            lambda batch: {name: values[: batch.count] for name, values in self.answers(batch.feeds).items()},
            self.n_at_once,
        )


def open_answers(
    trained: TrainedNet, tasks: Sequence[ChosenTask], config: EvaluateConfig, *, n_threads: int
) -> ReadyNet:
    """Compile the run's net for the results of ``tasks``."""
    ready = scoring_device(config.devices, trained.solver, n_threads=n_threads)
    if ready.kind == "gpu":
        _log.info("scores on %s", ready.description)
    device = next(iter(ready.names), "")
    takes_sizes = any(layer.takes_sizes for layer in trained.samples.layers)
    answers = compile_answers(
        trained.net, trained.params, tasks, n_threads=ready.n_threads, device=device, takes_sizes=takes_sizes
    )
    n_at_once = passes_at_once(trained.net.blob_shapes.values(), n_threads, is_host=ready.is_host)
    return ReadyNet(answers, ready.description, n_at_once)


def compile_answers(
    net: NetSpec,
    params: Vector,
    tasks: Sequence[ChosenTask],
    *,
    n_threads: int,
    device: str = "",
    takes_sizes: bool = False,
) -> Answers:
    """Compile ``net``, of phase TEST, and return a function from a batch to the results.

    TensorFlow's threads are fixed for the process by the first net compiled in it. ``device``: TensorFlow's name, empty
    for its own choice. With ``takes_sizes`` single samples of any size are taken, too.

    Returns:
        Outputs after their activation, and the targets that the net computes from data, by blob.

    Raises:
        NetError: A layer type that cannot be computed.
    """
    forward = compile_fixed_forward(
        net, params, n_threads=n_threads, outputs=wanted_blobs(tasks), device=device, takes_sizes=takes_sizes
    )
    activations = {name: task for task in tasks for name in task.outputs}

    def answers(feeds: Feeds) -> dict[str, npt.NDArray[Any]]:
        values = forward(feeds)
        return {
            name: activated(answer, activations[name]) if name in activations else _by_sample(answer, feeds)
            for name, answer in values.items()
        }

    return answers


def _by_sample(target: npt.NDArray[Any], feeds: Feeds) -> npt.NDArray[Any]:
    """Return a target (n, ...) of a whole batch of n samples; the net may have it as (T, N) or (T * N)."""
    n_samples = len(next(iter(feeds.values())))
    return target if len(target) == n_samples else target.reshape(n_samples, -1)


def compile_targets(net: NetSpec, tasks: Sequence[ChosenTask], *, n_threads: int) -> Answers:
    """Compile the targets computed by a net from data alone; fed targets need no compiling."""
    names = [task.target for task in tasks if task.target is not None and not task.is_target_fed]
    if not names:
        return lambda feeds: {}
    forward = compile_forward(net, n_threads=n_threads, outputs=names)
    none_learned = tf.zeros((net.params.n_params,), tf.float32)
    return lambda feeds: {name: _by_sample(target, feeds) for name, target in forward(none_learned, feeds).items()}
