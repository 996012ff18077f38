"""Training steps on the second logical device of the CPU: ``python -m`` with the dotted name of this file.

Its argument is a solver. TensorFlow splits the CPU only before its first operation. Prints a JSON object.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from caffe_import.files.prototxt import parse_net, parse_solver
from caffe_import.net.initial_vector import initial_vector
from caffe_import.net.net_spec import build_net_spec
from caffe_import.solver.solver_spec import solver_spec
from caffe_import.tf_graph.device_copies import is_on, to_device, to_host
from caffe_import.tf_graph.devices import set_up_devices
from caffe_import.tf_graph.train_step import TrainFunction, TrainState, compile_training
from tests.reference.device_copies import counted_copies

NET = """
name: "small"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 4 dim: 3 dim: 12 dim: 12 } } }
layer { name: "label" type: "Input" top: "label" input_param { shape { dim: 4 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 8 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "bn" }
layer { name: "relu" type: "ReLU" bottom: "bn" top: "bn" }
layer { name: "pool" type: "Pooling" bottom: "bn" top: "pool" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "drop" type: "Dropout" bottom: "pool" top: "pool" }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVERS = {
    "sgd": 'base_lr: 0.01 lr_policy: "fixed" max_iter: 90 momentum: 0.9 weight_decay: 0.001',
    "adam": 'type: "Adam" base_lr: 0.01 lr_policy: "fixed" max_iter: 90 momentum: 0.9 iter_size: 2 clip_gradients: 0.5',
}
DEVICE = "/device:CPU:1"
N_STEPS = 10


def feeds(n_passes: int, seed: int) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    images = rng.standard_normal((n_passes, 4, 3, 12, 12)).astype(np.float32)
    return {"data": images, "label": rng.integers(0, 10, (n_passes, 4)).astype(np.float32)}


def calls(function: TrainFunction, state: TrainState, first: int, n_calls: int) -> TrainState:
    passes = N_STEPS * function.solver.iter_size
    for call in range(first, first + n_calls):
        state, _ = function.run(
            state,
            step=N_STEPS * call,
            n_steps=N_STEPS,
            rate_scale=1.0,
            seed=7,
            worker=0,
            feeds=feeds(passes, seed=call),
        )
    return state


def in_parts(function: TrainFunction, state: TrainState) -> TrainState:
    batch = feeds(function.solver.iter_size, seed=99)
    state, result = function.gradient(state, step=90, seed=7, worker=0, feeds=batch)
    return function.apply(state, result.gradient, step=90, rate_scale=1.0)[0]


def compare(text: str) -> dict[str, Any]:
    net = build_net_spec(parse_net(NET), phase="TRAIN")
    solver = solver_spec(parse_solver(text))
    plain = compile_training(net, solver, n_threads=1)
    expected = calls(plain, plain.initial_state(initial_vector(net, 1)), 0, 3)
    function = compile_training(net, solver, n_threads=1, devices=(DEVICE,))
    with counted_copies() as copies:
        function.prepare()
        copies.clear()
        state = calls(function, function.initial_state(initial_vector(net, 1)), 0, 1)
        first = list(copies.to_device)
        copies.clear()
        state = calls(function, state, 1, 2)
        later, reports = list(copies.to_device), list(copies.to_host)
    with counted_copies() as reading:
        params = state.params_view()
        history = state.history_view()
    parts = in_parts(function, state).params_view()
    return {
        "is_same": bool(np.array_equal(params, expected.params_view()))
        and bool(np.array_equal(history, expected.history_view()))
        and bool(np.array_equal(parts, in_parts(plain, expected).params_view())),
        "stays": all(is_on(blob, DEVICE) for slot in state.history for blob in slot) and is_on(state.params, DEVICE),
        "sent": copies.sent,
        "n_traces": function.count_traces,
        "param_bytes": params.nbytes,
        "feed_bytes": [part.nbytes for part in feeds(N_STEPS * solver.iter_size, 0).values()],
        "first_to_device": first,
        "later_to_device": later,
        "reports_to_host": reports,
        "read_by_a_snapshot": reading.to_host,
    }


def copies_of_arrays() -> dict[str, bool]:
    array = np.arange(64, dtype=np.float32)
    moved = to_device(array, DEVICE)
    array[:] = -1
    back = to_host(moved)
    return {
        "is_there": is_on(moved, DEVICE),
        "is_own_memory": bool(np.array_equal(back, np.arange(64))),
        "is_moved_once": to_device(moved, DEVICE) is moved,
        "is_read_only": not back.flags.writeable,
    }


if __name__ == "__main__":
    set_up_devices("cpu", 2, n_threads=1)
    json.dump({**compare(SOLVERS[sys.argv[1]]), "arrays": copies_of_arrays()}, sys.stdout)
