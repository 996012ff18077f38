"""Compare several devices with a single device, on two logical CPU devices: ``python benchmarks/devices.py [--json]``.

Each logical device has work for a core (one thread per kernel, two kernels at a time). So two devices that compute at
the same time take half as long. All contenders are in one process and take turns. Figures are medians over the rounds,
in milliseconds for eight passes of cifar10_quick with 100 images, and ratios of medians.

  one device      eight passes of one step, on one device
  replicas        the same eight passes, shared by two devices
  stages          two stages of the net, eight steps of one pass: each device waits for the other
  pipeline        the same stages, eight passes of one step: both devices compute at the same time

Not measured on a GPU: each GPU has memory and a bus of its own.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from caffe_import.devices.compute_plan import PLAIN, ComputePlan, Placement
from caffe_import.files.prototxt import parse_solver, read_net
from caffe_import.net.initial_vector import initial_vector
from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.solver.solver_spec import solver_spec
from caffe_import.tf_graph.devices import set_up_devices
from caffe_import.tf_graph.train_step import compile_training

ROOT = Path(__file__).parents[1]
NET = ROOT / "examples/cifar10/cifar10_quick_train_test.prototxt"
SOLVER = 'base_lr: 0.001 momentum: 0.9 weight_decay: 0.004 lr_policy: "fixed" max_iter: 100000000'
N_PASSES = 8
SECOND_STAGE = "conv2"
"""First layer of the second device: both stages take about the same time."""


def stages(net: NetSpec) -> ComputePlan:
    """Return the net cut before ``SECOND_STAGE``."""
    first = next(position for position, layer in enumerate(net.layers) if layer.name == SECOND_STAGE)
    return ComputePlan(placement=Placement(2, {layer.name: int(k >= first) for k, layer in enumerate(net.layers)}))


def prepare(net: NetSpec, plan: ComputePlan, names: tuple[str, ...], iter_size: int) -> Callable[[], None]:
    """Compile and return ``N_PASSES`` passes of training."""
    solver = solver_spec(parse_solver(f"{SOLVER} iter_size: {iter_size}"))
    function = compile_training(net, solver, n_threads=1, plan=plan, devices=names)
    rng = np.random.default_rng(0)
    feeds = {
        "data": rng.random((N_PASSES, *net.inputs["data"]), np.float32),
        "label": rng.integers(0, 10, (N_PASSES, *net.inputs["label"])).astype(np.float32),
    }
    state = function.initial_state(initial_vector(net, seed=1))

    def one_round() -> None:
        nonlocal state
        n_steps = N_PASSES // iter_size
        state, _ = function.run(
            state, step=state.updates, n_steps=n_steps, rate_scale=1.0, seed=1, worker=0, feeds=feeds
        )

    one_round()
    return one_round


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = set_up_devices("cpu", 2, n_threads=1).names
    net = build_net_spec(read_net(NET), phase="TRAIN", sample_shapes=lambda _: ((3, 32, 32), ()))
    contenders = {
        "one device": prepare(net, PLAIN, names[:1], N_PASSES),
        "replicas": prepare(net, ComputePlan(n_replicas=2), names, N_PASSES),
        "stages": prepare(net, stages(net), names, 1),
        "pipeline": prepare(net, stages(net), names, N_PASSES),
    }
    step_ms: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(options.rounds):
        for name, one_round in contenders.items():
            begun = time.perf_counter()
            one_round()
            step_ms[name].append(1000 * (time.perf_counter() - begun))
    medians = {name: median(times) for name, times in step_ms.items()}
    ratios = {
        "one device / replicas": medians["one device"] / medians["replicas"],
        "stages / pipeline": medians["stages"] / medians["pipeline"],
    }
    if options.json:
        print(json.dumps({"ms": medians, "ratios": ratios}))
        return
    for name, value in {**medians, **ratios}.items():
        print(f"{name:24} {value:8.2f}")


if __name__ == "__main__":
    main()
