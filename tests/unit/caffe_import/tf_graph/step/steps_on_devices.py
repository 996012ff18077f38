"""Steps over two logical devices of the CPU beside the plain ones: ``python -m`` with the dotted name of this file.

Without arguments each kind of plan and of step once; with ``all`` each with each. TensorFlow splits the CPU only before
its first operation. Prints a JSON object: check -> what was found.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from caffe_import.devices.compute_plan import PLAIN, ComputePlan, Placement
from caffe_import.files.prototxt import parse_solver
from caffe_import.net.initial_vector import initial_vector
from caffe_import.net.net_spec import NetSpec
from caffe_import.solver.solver_spec import SolverSpec, solver_spec
from caffe_import.tf_graph.device_copies import is_on, to_host
from caffe_import.tf_graph.devices import set_up_devices
from caffe_import.tf_graph.train_step import StepOutputs, TrainFunction, TrainState, compile_training
from tests.reference.device_copies import counted_copies
from tests.reference.finest_segments import finest_segments
from tests.reference.parsed_net import net_of

DEVICES = ("/device:CPU:0", "/device:CPU:1")
N_STEPS = 3
NET = """
name: "small"
layer { name: "data" type: "Input" top: "data" top: "label"
  input_param { shape { dim: 4 dim: 2 dim: 8 dim: 8 } shape { dim: 4 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
BATCH_NORM
layer { name: "ip1" type: "InnerProduct" bottom: "pool" top: "ip1"
  inner_product_param { num_output: 7 weight_filler { type: "xavier" } } }
layer { name: "relu2" type: "ReLU" bottom: "ip1" top: "ip1" }
layer { name: "drop" type: "Dropout" bottom: "ip1" top: "ip1" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2"
  inner_product_param { num_output: 3 transpose: true weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" loss_weight: 0.5 }
layer { name: "accuracy" type: "Accuracy" bottom: "ip2" bottom: "label" top: "accuracy" }
"""
BATCH_NORM = 'layer { name: "bn" type: "BatchNorm" bottom: "pool" top: "pool" }'
LSTM = """
layer { name: "data" type: "Input" top: "data" top: "cont" top: "label"
  input_param { shape { dim: 3 dim: 2 dim: 4 } shape { dim: 3 dim: 2 } shape { dim: 6 } } }
layer { name: "lstm" type: "LSTM" bottom: "data" bottom: "cont" top: "lstm"
  recurrent_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "flat" type: "Reshape" bottom: "lstm" top: "flat" reshape_param { shape { dim: -1 dim: 5 } } }
layer { name: "ip" type: "InnerProduct" bottom: "flat" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
LONG_LSTM = LSTM.replace("dim: 3 dim: 2", "dim: 40 dim: 2").replace("dim: 6", "dim: 80")
SOLVERS = {
    "one pass": "momentum: 0.9",
    "clipped": "momentum: 0.9 iter_size: 4 clip_gradients: 0.3",
    "debug": "momentum: 0.9 iter_size: 2 debug_info: true display: 1",
    "Adam": 'type: "Adam" momentum: 0.9 momentum2: 0.99 iter_size: 2',
}


TWO_PASSES = "momentum: 0.9 iter_size: 2"


def solver_of(text: str, rate: float = 0.02) -> SolverSpec:
    return solver_spec(parse_solver(f'base_lr: {rate} lr_policy: "fixed" max_iter: 9 weight_decay: 0.01 {text}'))


def placed(net: NetSpec, *split: str) -> ComputePlan:
    """Second half of the layers on the second device; of the ``split`` ones a share on each."""
    half = len(net.layers) // 2
    devices = {layer.name: int(k >= half) for k, layer in enumerate(net.layers) if layer.name not in split}
    return ComputePlan(placement=Placement(2, devices, {name: (1, 0) for name in split}))


def feeds_of(net: NetSpec, n_passes: int) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(3)
    feeds = {}
    for name, shape in net.inputs.items():
        values = rng.integers(0, 3, (n_passes, *shape)) if name == "label" else rng.normal(size=(n_passes, *shape))
        feeds[name] = (np.ones((n_passes, *shape)) if name == "cont" else values).astype(np.float32)
    return feeds


def run_plan(
    net: NetSpec, solver: SolverSpec, plan: ComputePlan, feeds: Mapping[str, Any]
) -> tuple[TrainFunction, TrainState, StepOutputs]:
    names = DEVICES if plan.n_devices > 1 else ()
    function = compile_training(net, solver, n_threads=1, with_grad_norm=True, plan=plan, devices=names)
    n_steps = len(feeds["label"]) // solver.iter_size
    state, outputs = function.run(
        function.initial_state(initial_vector(net, 1)),
        step=0,
        n_steps=n_steps,
        rate_scale=1.0,
        seed=1,
        worker=0,
        feeds=feeds,
    )
    return function, state, outputs


def off(placed: Any, plain: Any) -> float:
    """Largest difference, as a share of the largest value."""
    placed, plain = np.asarray(placed), np.asarray(plain)
    return float(np.abs(placed - plain).max() / (np.abs(plain).max() or 1.0))


def weights(net: NetSpec, vector: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.concatenate([vector[e.offset : e.stop] for e in net.params.entries if e.kind == "weight"])


def in_parts(function: TrainFunction, feeds: Mapping[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The same steps by ``gradient`` and ``apply``, batches sent ahead, parameters replaced by a vector in between."""
    state, passes = function.initial_state(initial_vector(function.net, 1)), function.solver.iter_size
    for step in range(len(feeds["label"]) // passes):
        batch = {name: rows[step * passes : (step + 1) * passes] for name, rows in feeds.items()}
        state, result = function.gradient(state, step=step, seed=1, worker=0, feeds=function.feeds_to_device(batch))
        state, _ = function.apply(state, result.gradient, step=step, rate_scale=1.0)
        state = replace(state, params=np.array(state.params_view()))
    return state.params_view()


def compare(
    net: NetSpec,
    solver: SolverSpec,
    plans: Mapping[str, ComputePlan],
    *,
    parts: Collection[str] = (),
    base: ComputePlan = PLAIN,
) -> dict[str, Any]:
    """Compare each plan with the base; those of ``parts`` also by ``gradient`` and ``apply``."""
    feeds = feeds_of(net, N_STEPS * solver.iter_size)
    _, plain, plain_outputs = run_plan(net, solver, base, feeds)
    differences = {}
    for name, plan in plans.items():
        if solver.iter_size % plan.n_replicas:
            continue
        function, state, outputs = run_plan(net, solver, plan, feeds)
        offs = {
            "weights": off(weights(net, state.params_view()), weights(net, plain.params_view())),
            "history": off(state.history_view(), plain.history_view()),
            "losses": off(outputs.losses, plain_outputs.losses),
            "norms": off(outputs.grad_norm, plain_outputs.grad_norm),
            "outputs": max(off(outputs.outputs[blob], plain_outputs.outputs[blob]) for blob in plain_outputs.outputs),
        }
        if plan.n_replicas == 1:
            offs["params"] = off(state.params_view(), plain.params_view())
        if name in parts:
            offs["parts"] = off(weights(net, in_parts(function, feeds)), weights(net, plain.params_view()))
        if outputs.debug and plain_outputs.debug:
            offs["debug of updates"] = off(outputs.debug.updates, plain_outputs.debug.updates)
            # A replica's gradients are added up over its passes, here a single pass.
            first = outputs.debug.passes[:, : 1 if plan.n_replicas > 1 else None]
            offs["debug of passes"] = off(first, plain_outputs.debug.passes[:, : first.shape[1]])
        differences[name] = offs
    return differences


def replicas_own(text: str) -> dict[str, Any]:
    """Statistics and layer state of each replica beside a plain run of its passes alone; the rate is 0."""
    net, solver = net_of(text), solver_of("iter_size: 4", rate=0)
    feeds = feeds_of(net, 2 * 4)
    _, state, _ = run_plan(net, solver, ComputePlan(n_replicas=2), feeds)
    differences: dict[str, Any] = {}
    for replica in range(2):
        own_feeds = {name: rows[replica::2] for name, rows in feeds.items()}
        _, plain, _ = run_plan(net, solver_of("iter_size: 2", rate=0), PLAIN, own_feeds)
        blobs = net.params.views(plain.params_view())
        views = net.params.views(state.params_view())
        for entry in net.params.entries:
            if entry.kind == "statistic":
                key = f"{entry.layer}/{entry.index}@1"
                mine = to_host(state.layer_state[key]) if replica else views[entry.name]
                differences[f"{entry.name} of {replica}"] = off(mine, blobs[entry.name])
        for name, value in plain.layer_state.items():
            key = f"{name}@1" if replica else name
            differences[f"{name} of {replica}"] = off(to_host(state.layer_state[key]), to_host(value))
    return differences


def traffic(plan: ComputePlan, text: str, net_text: str = NET.replace("BATCH_NORM", "")) -> dict[str, Any]:
    """Return the copies of three later steps, and the device of the state afterwards."""
    net, solver = net_of(net_text), solver_of(text)
    feeds = feeds_of(net, N_STEPS * solver.iter_size)
    function = compile_training(net, solver, n_threads=1, plan=plan, devices=DEVICES)
    arguments = {"n_steps": N_STEPS, "rate_scale": 1.0, "seed": 1, "worker": 0}
    with counted_copies() as copies:
        state, _ = function.run(function.initial_state(initial_vector(net, 1)), step=0, feeds=feeds, **arguments)
        copies.clear()
        state, _ = function.run(state, step=N_STEPS, feeds=function.feeds_to_device(feeds), **arguments)
        moved = list(copies.to_device)
    pieces = [*state.params, *(blob for slot in state.history for blob in slot)]
    layout = state.params.layout.pieces  # type: ignore[union-attr]
    homes = [DEVICES[piece.device] for piece in layout] * (1 + len(state.history))
    return {
        "stays": all(is_on(blob, home) for blob, home in zip(pieces, homes, strict=True)),
        "moved": moved,
        "feeds": [rows[0].nbytes for rows in feeds.values()],
        "sent": copies.sent,
        "n_traces": function.count_traces,
    }


def quick_checks() -> dict[str, Any]:
    net, with_statistics = net_of(NET.replace("BATCH_NORM", "")), net_of(NET.replace("BATCH_NORM", BATCH_NORM))
    plans = {"placed": placed(net), "split": placed(net, "ip1", "ip2"), "replicas": ComputePlan(n_replicas=2)}
    statistics = {"replicas": ComputePlan(n_replicas=2)}
    recomputed = {"placed": replace(plans["placed"], recompute=unshared_segments(net))}
    compared = {
        "clipped": compare(net, solver_of(SOLVERS["clipped"]), plans, parts=("split", "replicas")),
        "debug": compare(net, solver_of(SOLVERS["debug"]), {"placed": plans["placed"]}),
        "batch norm": compare(with_statistics, solver_of(TWO_PASSES), statistics),
        "recomputed": compare(net, solver_of(TWO_PASSES), recomputed),
    }
    return {
        "compared": compared,
        "own": replicas_own(NET.replace("BATCH_NORM", BATCH_NORM)),
        "pipeline": traffic(placed(net), "momentum: 0.9 iter_size: 3"),
        "replicas": traffic(ComputePlan(n_replicas=2), "momentum: 0.9 iter_size: 4"),
        "loops": traffic(ComputePlan(n_replicas=2), TWO_PASSES, LONG_LSTM),
    }


def all_checks() -> dict[str, Any]:
    net, with_statistics = net_of(NET.replace("BATCH_NORM", "")), net_of(NET.replace("BATCH_NORM", BATCH_NORM))
    plans = {"placed": placed(net), "split": placed(net, "ip1", "ip2"), "replicas": ComputePlan(n_replicas=2)}
    comparisons: dict[str, Any] = {
        name: compare(net, solver_of(text), plans, parts=plans if name == "clipped" else ())
        for name, text in SOLVERS.items()
    }
    statistics = {"placed": placed(with_statistics), "replicas": ComputePlan(n_replicas=2)}
    comparisons["batch norm"] = compare(with_statistics, solver_of(TWO_PASSES), statistics, parts=statistics)
    lstm = net_of(LSTM)
    comparisons["lstm"] = compare(lstm, solver_of(TWO_PASSES), {"placed": placed(lstm)})
    recomputed = {name: replace(plan, recompute=unshared_segments(net)) for name, plan in plans.items()}
    comparisons["recomputed"] = compare(net, solver_of(TWO_PASSES), recomputed, parts=recomputed)
    base = ComputePlan(recompute=finest_segments(net), precision="float16")
    also = {name: replace(plan, recompute=base.recompute, precision=base.precision) for name, plan in plans.items()}
    del also["split"]  # each share's gradient of the bottom is rounded to 16 bits
    comparisons["recomputed float16"] = compare(net, solver_of(TWO_PASSES), also, base=base)
    return {"compared": comparisons, "own": replicas_own(LSTM)}


def unshared_segments(net: NetSpec) -> tuple[tuple[str, ...], ...]:
    """A layer that devices share is in no segment."""
    return tuple(segment for segment in finest_segments(net) if not {"ip1", "ip2"} & set(segment))


if __name__ == "__main__":
    set_up_devices("cpu", 2, n_threads=1)
    json.dump(all_checks() if "all" in sys.argv else quick_checks(), sys.stdout)
