"""Steps in 16 bits by every plan, on two logical devices of the CPU: ``python -m`` with the dotted name of this file.

Its arguments are precisions; ``bfloat16:replicas`` is a single plan. Prints a JSON object: precision and plan ->
differences from one device that computes everything.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any, cast

import numpy as np

from caffe_import.devices.compute_plan import ComputePlan, Placement, Precision
from caffe_import.files.prototxt import parse_net, parse_solver
from caffe_import.net.initial_vector import initial_vector
from caffe_import.net.net_spec import build_net_spec
from caffe_import.solver.solver_spec import solver_spec
from caffe_import.tf_graph.devices import set_up_devices
from caffe_import.tf_graph.train_step import StepOutputs, TrainState, compile_training

NET = """
name: "small"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 4 dim: 3 dim: 12 dim: 12 } } }
layer { name: "label" type: "Input" top: "label" input_param { shape { dim: 4 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 8 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "bn" }
layer { name: "relu" type: "ReLU" bottom: "bn" top: "bn" }
layer { name: "pool" type: "Pooling" bottom: "bn" top: "pool" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "ip2" type: "InnerProduct" bottom: "ip" top: "ip2"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" loss_weight: 64 }
"""
SMALL = build_net_spec(parse_net(NET), phase="TRAIN")
START = initial_vector(SMALL, 1)
LAYERS = ("data", "label", "conv", "bn", "relu", "pool", "ip", "ip2", "loss")
BEHIND = ("pool", "ip", "ip2", "loss", "label")
SOLVER = 'base_lr: 0.0001 lr_policy: "fixed" max_iter: 90 momentum: 0.9 weight_decay: 0.001 iter_size: 2'
DEVICES = ("/device:CPU:0", "/device:CPU:1")
ON_TWO = {layer: int(layer in BEHIND) for layer in LAYERS}
PLANS = {
    "recompute": ComputePlan(recompute=(("conv", "bn", "relu", "pool"),)),
    "replicas": ComputePlan(n_replicas=2),
    "placement": ComputePlan(placement=Placement(2, ON_TWO)),
    "split": ComputePlan(
        placement=Placement(2, {k: v for k, v in ON_TWO.items() if k != "ip"}, {"ip": (0, 1)}),
    ),
}


Ran = tuple[TrainState, TrainState, StepOutputs]


def ran(plan: ComputePlan, devices: tuple[str, ...]) -> Ran:
    """Return the state after the first step, and state and reports after eight."""
    function = compile_training(SMALL, solver_spec(parse_solver(SOLVER)), n_threads=1, plan=plan, devices=devices)
    rng = np.random.default_rng(0)
    feeds = {
        "data": rng.standard_normal((16, 4, 3, 12, 12)).astype(np.float32),
        "label": rng.integers(0, 10, (16, 4)).astype(np.float32),
    }
    begin = function.initial_state(START)
    options: dict[str, Any] = {"step": 0, "rate_scale": 1.0, "seed": 7, "worker": 0}
    first = function.run(begin, n_steps=1, feeds={name: rows[:2] for name, rows in feeds.items()}, **options)[0]
    return first, *function.run(begin, n_steps=8, feeds=feeds, **options)


def compared(placed: Ran, expected: Ran) -> dict[str, Any]:
    first, state, outputs = placed
    _, plain_state, plain_outputs = expected
    weights = np.concatenate(
        [
            np.arange(e.offset, e.stop) for e in SMALL.params.entries if e.kind == "weight"
        ]  # statistics are a replica's own
    )
    moved = np.linalg.norm((plain_state.params_view() - START)[weights])
    carried = [np.asarray(first.layer_state[name]) for name in sorted(first.layer_state)]
    return {
        "difference": float(np.linalg.norm((state.params_view() - plain_state.params_view())[weights]) / moved),
        "losses": float(np.max(np.abs(outputs.losses / plain_outputs.losses - 1))),
        "begun": None if outputs.scales is None else outputs.scales.begun.tolist(),
        "made": None if outputs.scales is None else outputs.scales.updated.tolist(),
        "updates": state.updates,
        "is_unmoved": all(not array.any() for array in carried),
    }


if __name__ == "__main__":
    set_up_devices("cpu", 2, n_threads=1)
    results: dict[str, Any] = {}
    for argument in sys.argv[1:]:
        name, _, only_plan = argument.partition(":")
        precision = cast(Precision, name)
        plain = ran(ComputePlan(precision=precision), ())
        results[precision] = {"plain": compared(plain, plain)}
        for plan_name, plan in PLANS.items():
            if plan_name == (only_plan or plan_name):
                devices = DEVICES[: plan.n_devices] if plan.n_devices > 1 else ()
                placed = ran(replace(plan, precision=precision), devices)
                results[precision][plan_name] = compared(placed, plain)
    sys.stdout.write(json.dumps(results))
