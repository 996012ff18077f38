"""A training step of published nets, in a separate process: ``python -m ...whole_net_steps NET ...``.

TensorFlow keeps the memory of a large net: a process with all nets would need gigabytes. Prints a JSON object: net ->
what its step gave.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from caffe_import.files.prototxt import parse_solver
from caffe_import.net.initial_vector import initial_vector
from caffe_import.net.net_spec import NetSpec
from caffe_import.solver.solver_spec import solver_spec
from caffe_import.tf_graph.train_step import compile_training
from tests.reference.published_nets import published_net

BATCH_SIZES = {
    "resnet50": 2,
    "vgg16": 1,
    "caffenet": 1,
    "alexnet": 1,
    "googlenet": 1,
    "squeezenet": 1,
    "captioner": 1,
    "siamese": 2,
}
SOLVER = 'base_lr: 0.001 lr_policy: "fixed" max_iter: 10 momentum: 0.9 weight_decay: 0.0005'
N_WORDS = 8801


def feeds(net: NetSpec) -> Mapping[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(5)
    fed = {}
    for blob, shape in net.inputs.items():
        if blob.endswith("_sentence"):
            values = rng.integers(0, N_WORDS, shape)
        elif blob in ("label", "sim"):
            values = rng.integers(0, 2, shape)
        else:
            values = rng.standard_normal(shape)
        fed[blob] = values.astype(np.float32)[None]
    if "cont_sentence" in fed:
        fed["cont_sentence"] = np.ones_like(fed["cont_sentence"])
        fed["cont_sentence"][:, 0] = 0
    return fed


def step_of(name: str, batch_size: int) -> dict[str, Any]:
    net = published_net(name, batch_size=batch_size, slim=True)
    old_params = initial_vector(net, 1)
    function = compile_training(net, solver_spec(parse_solver(SOLVER)), n_threads=1)
    state, outputs = function.run(
        function.initial_state(old_params.copy()), step=0, n_steps=1, rate_scale=1.0, seed=1, worker=0, feeds=feeds(net)
    )
    new_params = state.params_view()
    weights = [entry for entry in net.params.entries if entry.kind == "weight"]
    return {
        "loss": float(outputs.losses[0]),
        "is_finite": bool(np.isfinite(new_params).all()),
        "unmoved": [
            e.name for e in weights if np.array_equal(new_params[e.offset : e.stop], old_params[e.offset : e.stop])
        ],
        "n_traces": function.count_traces,
    }


if __name__ == "__main__":
    json.dump({name: step_of(name, BATCH_SIZES[name]) for name in sys.argv[1:]}, sys.stdout)
