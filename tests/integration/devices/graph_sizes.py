"""Resident bytes that the graph of a further size keeps: ``python -m tests.integration.devices.graph_sizes``.

Prints a JSON object with what was measured and forecast.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import numpy as np

from caffe_import.files.prototxt import parse_solver
from caffe_import.net.initial_vector import initial_vector
from caffe_import.solver.solver_spec import solver_spec
from caffe_import.tf_graph.train_step import compile_training
from deepspark_ops.train.data.sample_sizes import graph_bytes
from tests.reference.parsed_net import net_of

_INPUT = """layer { name: "in" type: "Input" top: "data" top: "label"
  input_param { shape { dim: 1 dim: 3 dim: 20 dim: 20 } shape { dim: 1 } } }"""
_SCORES = """layer { name: "mean" type: "Pooling" bottom: "data" top: "mean"
  pooling_param { pool: AVE global_pooling: true } }
layer { name: "scores" type: "InnerProduct" bottom: "mean" top: "scores" inner_product_param { num_output: 3 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "scores" bottom: "label" top: "loss" }"""
_N_CONVOLUTIONS, _N_SIZES = 10, 12


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


def _main() -> None:
    text = _INPUT
    for number in range(_N_CONVOLUTIONS):
        bottom = f"c{number - 1}" if number else "data"
        text += f'''layer {{ name: "c{number}" type: "Convolution" bottom: "{bottom}" top: "c{number}"
          convolution_param {{ num_output: 8 kernel_size: 3 pad: 1 weight_filler {{ type: "xavier" }} }} }}
          layer {{ name: "r{number}" type: "ReLU" bottom: "c{number}" top: "c{number}" }}'''
    net = net_of(text + _SCORES.replace('bottom: "data"', f'bottom: "c{_N_CONVOLUTIONS - 1}"'))
    solver = solver_spec(parse_solver('base_lr: 0.001 lr_policy: "fixed" max_iter: 100'))
    function = compile_training(net, solver, n_threads=1)
    state, before = function.initial_state(initial_vector(net, 0)), 0
    for number in range(3 + _N_SIZES):
        gc.collect()
        before = _resident_bytes() if number == 3 else before
        size = 20 + number
        feeds = {"data": np.zeros((1, 1, 3, size, size), np.float32), "label": np.zeros((1, 1), np.float32)}
        state, _ = function.run(
            state, step=0, n_steps=1, rate_scale=1.0, seed=0, worker=0, feeds=feeds, gives_away=False
        )
    gc.collect()
    sizes = {"measured": (_resident_bytes() - before) / _N_SIZES, "forecast": graph_bytes(net)}
    sys.stdout.write(json.dumps(sizes))


if __name__ == "__main__":
    _main()
