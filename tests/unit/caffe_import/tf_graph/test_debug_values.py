from __future__ import annotations

import numpy as np
import pytest

from caffe_import.files.prototxt import parse_solver
from caffe_import.solver.solver_spec import solver_spec
from caffe_import.tf_graph.predict import compile_prepared_forward
from caffe_import.tf_graph.train_step import compile_training
from tests.reference.parsed_net import net_of

pytestmark = pytest.mark.tf

NET = """
name: "shares"
layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "low" type: "InnerProduct" bottom: "data" top: "low" param { name: "w" }
  inner_product_param { num_output: 3 bias_term: false } }
layer { name: "relu" type: "ReLU" bottom: "low" top: "low" }
layer { name: "high" type: "InnerProduct" bottom: "low" top: "high" param { name: "w" } param { lr_mult: 0 }
  inner_product_param { num_output: 3 } }
layer { name: "loss" type: "Reduction" bottom: "high" top: "loss" loss_weight: 2 }
"""


def number(value: float) -> str:
    return f"{value:g}"


def mean(values: np.ndarray) -> str:
    return number(float(np.mean(np.abs(values.astype(np.float64)))))


def expected_lines(weights: np.ndarray, bias: np.ndarray, batches: np.ndarray, rate: float) -> list[str]:
    """Return Caffe's log lines of an update of NET, by the formulas of net.cpp."""
    lines, sums = [], np.zeros((3, 3))
    for data in batches.astype(np.float64):
        first = data @ weights.T
        low = np.maximum(first, 0)
        high = low @ weights.T + bias
        of_high = np.full((2, 3), 2.0)
        of_high_weights = of_high.T @ low
        of_low = of_high @ weights
        of_first = of_low * (first > 0)
        after_high = sums + of_high_weights
        after_low = after_high + of_first.T @ data
        lines += [
            f"    [Forward] Layer in, top blob data data: {mean(data)}",
            f"    [Forward] Layer low, top blob low data: {mean(first)}",
            f"    [Forward] Layer low, param blob w data: {mean(weights)}",
            f"    [Forward] Layer relu, top blob low data: {mean(low)}",
            f"    [Forward] Layer high, top blob high data: {mean(high)}",
            f"    [Forward] Layer high, param blob w data: {mean(weights)}",
            f"    [Forward] Layer high, param blob 1 data: {mean(bias)}",
            f"    [Forward] Layer loss, top blob loss data: {mean(high.sum(keepdims=True))}",
            f"    [Backward] Layer loss, bottom blob high diff: {mean(of_high)}",
            f"    [Backward] Layer high, bottom blob low diff: {mean(of_low)}",
            f"    [Backward] Layer high, param blob 0 diff: {mean(after_high)}",
            f"    [Backward] Layer relu, bottom blob low diff: {mean(of_first)}",
            f"    [Backward] Layer low, param blob 0 diff: {mean(after_low)}",
        ]
        sums = after_low
        parameters = np.concatenate([weights.reshape(-1), bias])
        l1, l2 = np.abs(parameters).sum(), np.sqrt(np.square(parameters).sum())
        l1_diff, l2_diff = np.abs(sums).sum(), np.sqrt(np.square(sums).sum())
        lines.append(
            f"    [Backward] All net params (data, diff): L1 norm = ({number(l1)}, {number(l1_diff)});"
            f" L2 norm = ({number(l2)}, {number(l2_diff)})"
        )
    step = mean(rate * sums / len(batches))
    return [
        *lines,
        f"    [Update] Layer low, param w data: {mean(weights)}; diff: {step}",
        f"    [Update] Layer high, param blob w (owned by layer low, param w) diff: {step}",
        f"    [Update] Layer high, param 1 data: {mean(bias)}; diff: 0",
    ]


def same_but_for_the_last_digit(lines: list[str], expected: list[str]) -> None:
    assert len(lines) == len(expected)
    for line, expected_line in zip(lines, expected, strict=True):
        for word, other in zip(line.split(), expected_line.split(), strict=True):
            number_of, value = (text.strip("(),;") for text in (word, other))
            if word != other:
                assert float(number_of) == pytest.approx(float(value), rel=1e-5), line


@pytest.mark.parametrize("iter_size", [1, 2])
def test_lines_equal_caffes_formulas(iter_size: int) -> None:
    net = net_of(NET)
    solver = solver_spec(
        parse_solver(f'base_lr: 0.5 lr_policy: "fixed" max_iter: 9 display: 1 debug_info: true iter_size: {iter_size}')
    )
    function = compile_training(net, solver, n_threads=1)
    rng = np.random.default_rng(0)
    params = rng.normal(size=net.params.n_params).astype(np.float32)
    batches = rng.normal(size=(2 * iter_size, 2, 3)).astype(np.float32)
    state = function.initial_state(params)
    for step in range(2):
        feeds = {"data": batches[step * iter_size : (step + 1) * iter_size]}
        old_params = state.params_view().copy()
        state, outputs = function.run(state, step=step, n_steps=1, rate_scale=1, seed=0, worker=0, feeds=feeds)
        assert outputs.debug is not None
        expected = expected_lines(old_params[:9].reshape(3, 3), old_params[9:], feeds["data"], 0.5)
        same_but_for_the_last_digit(outputs.debug.lines(net, 0), expected)


def test_a_step_in_two_parts_has_the_lines_of_its_passes() -> None:
    net = net_of(NET)
    solver = solver_spec(parse_solver('base_lr: 0.5 lr_policy: "fixed" max_iter: 9 display: 1 debug_info: true'))
    function = compile_training(net, solver, n_threads=1)
    state = function.initial_state(np.ones(net.params.n_params, np.float32))
    feeds = {"data": np.random.default_rng(0).normal(size=(1, 2, 3)).astype(np.float32)}
    _, outputs = function.run(state, step=0, n_steps=1, rate_scale=1, seed=0, worker=0, feeds=feeds)
    _, part = function.gradient(state, step=0, seed=0, worker=0, feeds=feeds)
    assert outputs.debug is not None
    assert part.debug is not None
    lines = part.debug.lines(net, 0)
    assert lines == [line for line in outputs.debug.lines(net, 0) if "[Update]" not in line]


def test_statistics_are_shown_as_the_pass_left_them_and_have_no_gradient() -> None:
    net = net_of("""
    layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 4 dim: 2 } } }
    layer { name: "bn" type: "BatchNorm" bottom: "data" top: "bn" }
    layer { name: "ip" type: "InnerProduct" bottom: "bn" top: "ip"
      inner_product_param { num_output: 1 bias_term: false } }
    layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 1 }
    """)
    solver = solver_spec(parse_solver('base_lr: 1 lr_policy: "fixed" max_iter: 9 display: 5 debug_info: true'))
    function = compile_training(net, solver, n_threads=1)
    params = np.zeros(net.params.n_params, np.float32)
    feeds = {"data": np.ones((1, 4, 2), np.float32)}
    _, outputs = function.run(
        function.initial_state(params), step=0, n_steps=1, rate_scale=1, seed=0, worker=0, feeds=feeds
    )
    assert outputs.debug is not None
    lines = outputs.debug.lines(net, 0)
    assert "    [Forward] Layer bn, param blob 2 data: 1" in lines
    assert not [line for line in lines if line.startswith("    [Backward] Layer bn")]


@pytest.mark.parametrize("options", ["display: 5", "debug_info: true"])
def test_nothing_is_computed_without_both_fields(options: str) -> None:
    solver = solver_spec(parse_solver(f'base_lr: 1 lr_policy: "fixed" max_iter: 9 {options}'))
    function = compile_training(net_of(NET), solver, n_threads=1)
    function.prepare()
    feeds = {"data": np.ones((1, 2, 3), np.float32)}
    start = function.initial_state(np.ones(function.net.params.n_params, np.float32))
    assert function.run(start, step=0, n_steps=1, rate_scale=1, seed=0, worker=0, feeds=feeds)[1].debug is None


def test_a_test_net_has_the_lines_of_its_forward_pass() -> None:
    net = net_of(NET)
    data = np.ones((2, 3), np.float32)
    params = np.ones(net.params.n_params, np.float32)
    passes = [
        forward.run(forward.prepared(params), {"data": data}, layer_state={})
        for forward in (compile_prepared_forward(net, n_threads=1, debug_info=shown) for shown in (True, False))
    ]
    outputs = passes[0]
    assert outputs.debug is not None
    # data 1; low 3 before and after ReLU; high 3 * 3 + 1; their sum
    assert outputs.debug.tolist() == [1, 3, 1, 3, 10, 1, 1, 60]
    assert passes[1].debug is None
