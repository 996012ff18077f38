"""Peaks of live bytes of training steps, in a process of its own: ``python -m tests.integration.devices.step_peaks``.

TensorFlow's allocator counts for the whole process. Prints a JSON object: net -> what was measured and forecast.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from caffe_import.devices.compute_plan import ComputePlan
from caffe_import.devices.segments import choose_segments
from caffe_import.devices.step_memory import step_memory, step_shape
from caffe_import.files.prototxt import parse_solver, read_net
from caffe_import.net.initial_vector import initial_vector
from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.solver.solver_spec import solver_spec
from caffe_import.tf_graph import tensorflow as tf
from caffe_import.tf_graph.train_step import compile_training
from tests.integration.whole_net_steps import SOLVER, feeds
from tests.paths import ROOT
from tests.reference.published_nets import published_net

_EXAMPLES = {
    "lenet": ("digits/lenet_train_test.prototxt", (1, 28, 28), 64),
    "cifar10_quick": ("cifar10/cifar10_quick_train_test.prototxt", (3, 32, 32), 100),
}


def example_net(name: str) -> NetSpec:
    if name not in _EXAMPLES:
        return published_net(name, batch_size=8)
    path, shape, batch_size = _EXAMPLES[name]
    message = read_net(ROOT / "examples" / path)
    for layer in message.layer:
        layer.data_param.batch_size = batch_size if layer.type == "Data" else 0
    return build_net_spec(message, phase="TRAIN", sample_shapes=lambda _: (shape, ()))


def measured(name: str, *, recompute: bool) -> dict[str, Any]:
    net = example_net(name)
    segments = choose_segments(net) if recompute else ()
    solver = solver_spec(parse_solver(SOLVER))
    train = compile_training(net, solver, n_threads=1, plan=ComputePlan(recompute=segments))
    state = train.initial_state(initial_vector(net, 1))
    peaks = []
    base_bytes = tf.config.experimental.get_memory_info("CPU:0")["current"]
    for step in range(5):
        tf.config.experimental.reset_memory_stats("CPU:0")
        state, outputs = train.run(
            state, step=step, n_steps=1, rate_scale=1.0, seed=1, worker=0, feeds=feeds(net), gives_away=True
        )
        peaks.append(tf.config.experimental.get_memory_info("CPU:0")["peak"] - base_bytes)
    return {
        # Steps differ by a sixth, and so do the medians of processes; the largest of a few differs least.
        "measured": float(max(peaks)),
        "forecast": step_memory(net, step_shape(solver), segments).total_bytes,
        "loss": float(outputs.losses[0]),
        "params": float(np.abs(state.params_view()).sum(dtype=np.float64)),
    }


if __name__ == "__main__":
    peaks = {}
    for case in sys.argv[1:]:
        name, _, how = case.partition("+")
        peaks[case] = measured(name, recompute=how == "recompute")
    json.dump(peaks, sys.stdout)
