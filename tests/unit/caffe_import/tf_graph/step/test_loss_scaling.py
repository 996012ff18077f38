"""Training in float16 against a slow loop that rounds, scales, skips and updates number by number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from caffe_import.devices import loss_scale
from caffe_import.devices.compute_plan import ComputePlan, Precision
from caffe_import.devices.loss_scale import LOWEST, LossScale
from caffe_import.files.prototxt import parse_net, parse_solver
from caffe_import.net.net_spec import build_net_spec
from caffe_import.solver.solver_spec import solver_spec
from caffe_import.tf_graph.train_step import StepOutputs, TrainFunction, TrainState, compile_training
from tests.reference.slow_training import SlowSolver, one_step

pytestmark = pytest.mark.tf

PRODUCT = """
layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 1 dim: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 1 bias_term: false } }
layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: %g }
"""
# Its gradient by the weight is the input times the loss weight: 8 * 2**15 is past float16's 65504, and so is 4 * 16384.
LOSS_WEIGHT = 8.0
INPUTS = (1, 1, 1, 1, 1, 4, 0.5, 0.25, 1, 0.5, 16, 0.5, 0.5, 0.5, 0.5, 0.5)


def compiled(solver: str = "", *, loss_weight: float = LOSS_WEIGHT, precision: Precision = "float16") -> TrainFunction:
    net = build_net_spec(parse_net(PRODUCT % loss_weight), phase="TRAIN")
    spec = solver_spec(parse_solver(f'base_lr: 0.125 lr_policy: "fixed" max_iter: 100 {solver}'))
    return compile_training(net, spec, n_threads=1, plan=ComputePlan(precision=precision))


def run_steps(function: TrainFunction, state: TrainState, inputs: Sequence[float]) -> tuple[TrainState, StepOutputs]:
    feeds = {"data": np.array(inputs, np.float32).reshape(-1, 1, 1)}
    n_steps = len(inputs) // function.solver.iter_size
    return function.run(state, step=0, n_steps=n_steps, rate_scale=1.0, seed=0, worker=0, feeds=feeds)


def slowly(inputs: Sequence[float], solver: SlowSolver, *, doubled_after: int) -> tuple[list[float], list[float], int]:
    """Return the weight after each step, the scale that each began with, and the updates made."""
    weight, first, second, scale, good, updates = 1.0, 0.0, 0.0, 2.0**15, 0, 0
    weights, scales = [], []
    for begin in range(0, len(inputs), solver.iter_size):
        scales.append(scale)
        passes = inputs[begin : begin + solver.iter_size]
        with np.errstate(over="ignore"):
            of_top = np.float16(LOSS_WEIGHT * scale)
            gradient = sum(float(np.float16(float(of_top) * x)) / scale for x in passes)
        if np.isfinite(gradient):
            updates += 1
            if 0 <= solver.clip_gradients < abs(gradient):
                gradient *= solver.clip_gradients / abs(gradient)
            g = gradient / solver.iter_size + solver.weight_decay * weight
            step, first, second = one_step(solver, g, solver.base_lr, first, second, updates)
            weight -= step
            good += 1
            if good == doubled_after:
                scale, good = 2 * scale, 0
        else:
            scale, good = scale / 2, 0
        weights.append(weight)
    return weights, scales, updates


@pytest.mark.parametrize(
    ("text", "slow"),
    [
        ("momentum: 0.5", SlowSolver(base_lr=0.125, momentum=0.5)),
        ("momentum: 0.5 iter_size: 2", SlowSolver(base_lr=0.125, momentum=0.5, iter_size=2)),
        ("clip_gradients: 3 weight_decay: 0.25", SlowSolver(base_lr=0.125, clip_gradients=3.0, weight_decay=0.25)),
        ('type: "Adam" momentum: 0.5', SlowSolver("Adam", base_lr=0.125, momentum=0.5)),
    ],
)
def test_weights_and_scales_are_those_of_a_slow_loop(
    text: str, slow: SlowSolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_scale, "DOUBLED_AFTER", 3)
    weights, scales, updates = slowly(INPUTS, slow, doubled_after=3)
    assert len(set(scales)) > 4, "the inputs must move the scale both ways"
    assert updates < len(weights)
    function = compiled(text)
    state = function.initial_state(np.ones(1, np.float32))
    computed, begun = [], []
    # Calls of one step and of several: each call hands the scale to the next.
    for start, stop in ((0, 2), (2, 4), (4, 10), (10, len(INPUTS))):
        state, outputs = run_steps(function, state, INPUTS[start:stop])
        assert outputs.scales is not None
        begun += outputs.scales.begun.tolist()
        computed.append(float(state.params_view()[0]))
    stops = [stop // slow.iter_size - 1 for stop in (2, 4, 10, len(INPUTS))]
    # float32 against float64 over a dozen updates; Adam divides by a root.
    assert computed == pytest.approx([weights[k] for k in stops], rel=1e-5)
    assert begun == scales
    assert state.updates == updates


BATCH_NORM = """
layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 4 dim: 2 } } }
layer { name: "bn" type: "BatchNorm" bottom: "data" top: "bn" }
layer { name: "ip" type: "InnerProduct" bottom: "bn" top: "ip" inner_product_param { num_output: 1 } }
layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 8 }
"""


def test_a_skipped_step_leaves_parameters_history_and_statistics() -> None:
    net = build_net_spec(parse_net(BATCH_NORM), phase="TRAIN")
    solver = solver_spec(parse_solver('base_lr: 0.1 momentum: 0.9 lr_policy: "fixed" max_iter: 9'))
    function = compile_training(net, solver, n_threads=1, plan=ComputePlan(precision="float16"))
    old_state = replace(
        function.initial_state(np.arange(1, net.params.n_params + 1, dtype=np.float32)),
        history=np.full((1, net.params.n_params), 0.5, np.float32),
    )
    feeds = {"data": np.random.default_rng(0).normal(size=(1, 4, 2)).astype(np.float32)}
    new_state, outputs = function.run(old_state, step=0, n_steps=1, rate_scale=1.0, seed=0, worker=0, feeds=feeds)
    assert outputs.scales is not None
    assert not outputs.scales.updated.any()
    assert np.isfinite(outputs.losses).all()
    assert np.array_equal(new_state.params_view(), old_state.params_view())
    assert np.array_equal(new_state.history_view(), old_state.history_view())
    assert (new_state.updates, new_state.loss_scale) == (0, LossScale(2.0**14, 0))
    calm, outputs = function.run(
        replace(old_state, loss_scale=LossScale(8.0)), step=0, n_steps=1, rate_scale=1.0, seed=0, worker=0, feeds=feeds
    )
    assert outputs.scales is not None
    assert outputs.scales.updated.all()
    assert not np.isclose(calm.params_view(), old_state.params_view()).any()


def test_a_pushed_gradient_is_computed_again_until_it_is_finite() -> None:
    function = compiled()
    old_state = function.initial_state(np.ones(1, np.float32))
    feeds = {"data": np.ones((1, 1, 1), np.float32)}
    new_state, result = function.gradient(old_state, step=0, seed=0, worker=0, feeds=feeds)
    assert result.gradient.tolist() == [LOSS_WEIGHT]
    assert new_state.loss_scale == LossScale(2.0**12, 1)
    assert result.scales is not None
    assert (result.scales.begun, result.scales.updated, result.scales.ended) == (2.0**15, True, 2.0**12)
    next_state, _ = function.gradient(new_state, step=1, seed=0, worker=0, feeds=feeds)
    assert next_state.loss_scale == LossScale(2.0**12, 2)


def test_a_gradient_that_no_scale_makes_finite_ends_the_tries() -> None:
    function = compiled(loss_weight=2.0**60)
    feeds = {"data": np.ones((1, 1, 1), np.float32)}
    old_state = replace(function.initial_state(np.ones(1, np.float32)), loss_scale=LossScale(8 * LOWEST))
    _, result = function.gradient(old_state, step=0, seed=0, worker=0, feeds=feeds)
    assert result.scales is not None
    assert not result.scales.updated[0]
    assert result.scales.ended[0] == LOWEST


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_other_precisions_scale_nothing(precision: Precision) -> None:
    function = compiled(precision=precision)
    state, outputs = run_steps(function, function.initial_state(np.ones(1, np.float32)), [1, 1])
    assert outputs.scales is None
    assert state.loss_scale is None
    assert state.params_view().tolist() == [1 - 2 * 0.125 * LOSS_WEIGHT]


def test_debug_info_shows_unscaled_gradients() -> None:
    shown = {}
    for precision in ("float32", "float16"):
        function = compiled("debug_info: true display: 1", precision=precision)
        state = function.initial_state(np.ones(1, np.float32))
        if precision == "float16":
            state = replace(state, loss_scale=LossScale(64.0))
        _, outputs = run_steps(function, state, [1, 1])
        assert outputs.debug is not None
        shown[precision] = outputs.debug.lines(function.net, 0)
    assert shown["float16"] == shown["float32"]
