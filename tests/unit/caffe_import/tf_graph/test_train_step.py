from __future__ import annotations

import gc
import resource
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from caffe_import.files.prototxt import parse_solver
from caffe_import.solver.solver_spec import SolverSpec, solver_spec
from caffe_import.tf_graph.device_copies import to_host
from caffe_import.tf_graph.train_step import StepOutputs, TrainFunction, TrainState, compile_training
from tests.reference.parsed_net import net_of
from tests.reference.slow_training import SlowSolver, loss_and_gradient, train

pytestmark = pytest.mark.tf

BATCH, INPUTS, CLASSES = 4, 3, 3

SOFTMAX = """
layer { name: "in" type: "Input" top: "data" top: "label"
  input_param { shape { dim: 4 dim: 3 } shape { dim: 4 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" param { lr_mult: %s decay_mult: %s }
  inner_product_param { num_output: 3 bias_term: false } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
TWO_LAYERS = """
layer { name: "in" type: "Input" top: "data" top: "label"
  input_param { shape { dim: 4 dim: 3 } shape { dim: 4 } } }
layer { name: "first" type: "InnerProduct" bottom: "data" top: "first" inner_product_param { num_output: 5 } }
layer { name: "second" type: "InnerProduct" bottom: "first" top: "second" param { lr_mult: %g } param { lr_mult: %g }
  inner_product_param { num_output: 3 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "second" bottom: "label" top: "loss" }
"""
DROPOUT = """
layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 2 dim: 400 } } }
layer { name: "drop" type: "Dropout" bottom: "data" top: "drop" }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 1 } }
layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 1 }
"""


def solver_of(text: str = "") -> SolverSpec:
    policy = "" if "lr_policy" in text else 'lr_policy: "fixed"'
    return solver_spec(parse_solver(f"base_lr: 0.1 {policy} max_iter: 100 {text}"))


def softmax(
    solver: str = "", *, lr_mult: float = 1, decay_mult: float = 1, with_grad_norm: bool = False
) -> TrainFunction:
    net = net_of(SOFTMAX % (lr_mult, decay_mult))
    return compile_training(net, solver_of(solver), n_threads=1, with_grad_norm=with_grad_norm)


def batches(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "data": rng.normal(size=(n, BATCH, INPUTS)).astype(np.float32),
        "label": rng.integers(0, CLASSES, (n, BATCH)).astype(np.float32),
    }


def first_state(function: TrainFunction) -> TrainState:
    rng = np.random.default_rng(1)
    return function.initial_state(rng.normal(size=function.net.params.n_params).astype(np.float32))


def run_steps(
    function: TrainFunction,
    state: TrainState,
    feeds: dict[str, np.ndarray],
    *,
    step: int = 0,
    rate_scale: float = 1.0,
    seed: int = 0,
    worker: int = 0,
    gives_away: bool = False,
) -> tuple[TrainState, StepOutputs]:
    n_steps = len(next(iter(feeds.values()))) // function.solver.iter_size
    return function.run(
        state,
        step=step,
        n_steps=n_steps,
        rate_scale=rate_scale,
        seed=seed,
        worker=worker,
        feeds=feeds,
        gives_away=gives_away,
    )


def slow_result(
    function: TrainFunction, feeds: dict[str, np.ndarray], solver: SlowSolver
) -> tuple[np.ndarray, list[float]]:
    weights = first_state(function).params_view().reshape(CLASSES, INPUTS).astype(float).tolist()
    pairs = [
        (images.tolist(), labels.astype(int).tolist())
        for images, labels in zip(feeds["data"], feeds["label"], strict=True)
    ]
    losses = train(weights, pairs, solver)
    return np.array(weights).reshape(-1), losses


@pytest.mark.parametrize(
    ("options", "slow"),
    [
        ("", SlowSolver()),
        ("momentum: 0.9", SlowSolver(momentum=0.9)),
        ("momentum: 0.9 weight_decay: 0.1", SlowSolver(momentum=0.9, weight_decay=0.1)),
        ('weight_decay: 0.1 regularization_type: "L1"', SlowSolver(weight_decay=0.1, regularization_type="L1")),
        ("clip_gradients: 0.2 weight_decay: 0.5", SlowSolver(clip_gradients=0.2, weight_decay=0.5)),
        ("iter_size: 3", SlowSolver(iter_size=3)),
        ("iter_size: 2 clip_gradients: 0.3", SlowSolver(iter_size=2, clip_gradients=0.3)),
        ('type: "Nesterov" momentum: 0.8', SlowSolver("Nesterov", momentum=0.8)),
        ('type: "AdaGrad" delta: 0.01', SlowSolver("AdaGrad", delta=0.01)),
        ('type: "RMSProp" rms_decay: 0.9', SlowSolver("RMSProp", rms_decay=0.9)),
        ('type: "AdaDelta" momentum: 0.9 delta: 1e-3', SlowSolver("AdaDelta", momentum=0.9, delta=1e-3)),
        ('type: "Adam" momentum: 0.9', SlowSolver("Adam", momentum=0.9)),
        ('type: "Adam" momentum: 0.5 momentum2: 0.9 weight_decay: 0.1 iter_size: 2',
         SlowSolver("Adam", momentum=0.5, momentum2=0.9, weight_decay=0.1, iter_size=2)),
    ],
)  # fmt: skip
def test_training_equals_the_slow_loop(options: str, slow: SlowSolver) -> None:
    function = softmax(options)
    feeds = batches(6)
    weights, losses = slow_result(function, feeds, slow)
    state, outputs = run_steps(function, first_state(function), feeds)
    np.testing.assert_allclose(state.params_view(), weights, rtol=2e-5, atol=1e-6)  # float32, 6 updates
    np.testing.assert_allclose(outputs.losses, losses, rtol=1e-5)


def test_multipliers_scale_rate_and_decay() -> None:
    function = softmax("momentum: 0.9 weight_decay: 0.1", lr_mult=2, decay_mult=0.5)
    feeds = batches(4)
    slow = SlowSolver(momentum=0.9, weight_decay=0.1, lr_mult=2, decay_mult=0.5)
    np.testing.assert_allclose(
        run_steps(function, first_state(function), feeds)[0].params_view(),
        slow_result(function, feeds, slow)[0],
        rtol=2e-5,
    )


def test_frozen_blob_keeps_its_values_and_has_no_share_in_the_norm() -> None:
    function = softmax("weight_decay: 0.1", lr_mult=0, with_grad_norm=True)
    old_state = first_state(function)
    new_state, outputs = run_steps(function, old_state, batches(3))
    assert new_state.params_view().tolist() == old_state.params_view().tolist()
    assert outputs.grad_norm is not None
    assert outputs.grad_norm.tolist() == [0.0, 0.0, 0.0]


def test_one_trace_serves_every_number_of_steps() -> None:
    function = softmax("iter_size: 2")
    state = first_state(function)
    for n_steps in (1, 5, 2, 1):
        state, outputs = run_steps(function, state, batches(2 * n_steps))
        assert outputs.losses.shape == (n_steps,)
    assert function.count_traces == 1


@pytest.mark.parametrize(
    "solver", ["momentum: 0.9", 'type: "Adam" momentum: 0.9', 'momentum: 0.9 lr_policy: "exp" gamma: 0.9']
)
def test_two_calls_equal_one_bit_for_bit(solver: str) -> None:
    function = softmax(solver)
    feeds = batches(7)
    expected, _ = run_steps(function, first_state(function), feeds)
    state, _ = run_steps(function, first_state(function), {name: array[:3] for name, array in feeds.items()})
    state, _ = run_steps(function, state, {name: array[3:] for name, array in feeds.items()}, step=3)
    assert np.array_equal(state.params_view(), expected.params_view())
    assert np.array_equal(state.history_view(), expected.history_view())
    assert state.updates == expected.updates == 7


def test_run_leaves_the_given_state_alone() -> None:
    function = softmax("momentum: 0.9")
    params = np.arange(CLASSES * INPUTS, dtype=np.float32)
    old_state = function.initial_state(params)
    run_steps(function, old_state, batches(3))
    assert params.tolist() == list(range(CLASSES * INPUTS))
    assert not old_state.history_view().any()


@pytest.mark.parametrize("solver", ["momentum: 0.9 weight_decay: 0.1", 'type: "Adam" momentum: 0.9'])
def test_a_run_that_takes_the_state_gives_the_same_numbers_and_leaves_views_alone(solver: str) -> None:
    function, feeds = softmax(solver), batches(3)
    kept_state, _ = run_steps(function, first_state(function), feeds)
    aligned = np.zeros(64 + 9, np.float32)
    offset = -aligned.ctypes.data % 64 // 4
    vector = aligned[offset : offset + 9]
    vector[:] = kept_state.params_view()
    for state in (kept_state, replace(kept_state, params=vector)):
        views = [state.params_view(), *(to_host(blob) for slot in state.history for blob in slot)]
        contents = [view.copy() for view in views]
        expected, _ = run_steps(function, replace(state), feeds)
        new_state, _ = run_steps(function, taken_state := replace(state), feeds, gives_away=True)
        np.testing.assert_array_equal(new_state.params_view(), expected.params_view())
        np.testing.assert_array_equal(new_state.history_view(), expected.history_view())
        assert taken_state.params is None
        for view, content in zip(views, contents, strict=True):
            np.testing.assert_array_equal(view, content)


def test_views_share_memory_and_are_read_only() -> None:
    function = softmax()
    state, _ = run_steps(function, first_state(function), batches(1))
    view = state.params_view()
    assert np.shares_memory(view, state.params_view())
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1.0


def test_a_fresh_numpy_vector_continues_as_the_tensor_does() -> None:
    function = softmax("momentum: 0.9")
    state, _ = run_steps(function, first_state(function), batches(2))
    copied = replace(state, params=np.array(state.params_view()))
    assert np.array_equal(
        run_steps(function, copied, batches(2, 5), step=2)[0].params_view(),
        run_steps(function, state, batches(2, 5), step=2)[0].params_view(),
    )


def test_rates_follow_the_clock_and_the_scale() -> None:
    function = softmax('lr_policy: "step" gamma: 0.5 stepsize: 2')
    _, outputs = run_steps(function, first_state(function), batches(4), step=1, rate_scale=3.0)
    np.testing.assert_allclose(outputs.lr, [0.3, 0.15, 0.15, 0.075], rtol=1e-6)


def test_rate_scale_multiplies_the_step() -> None:
    function = softmax()
    old_state = first_state(function)
    once = run_steps(function, old_state, batches(1))[0].params_view() - old_state.params_view()
    thrice = run_steps(function, old_state, batches(1), rate_scale=3.0)[0].params_view() - old_state.params_view()
    np.testing.assert_allclose(thrice, 3 * once, rtol=1e-4)  # differences of float32 numbers near 1


def dropped(step: int, seed: int, worker: int, *, iter_size: int = 1) -> np.ndarray:
    function = compile_training(net_of(DROPOUT), solver_of(f"iter_size: {iter_size}"), n_threads=1)
    feeds = {"data": np.ones((2 * iter_size, 2, 400), np.float32)}
    return run_steps(function, first_state(function), feeds, step=step, seed=seed, worker=worker)[1].outputs["drop"]


def test_a_blobs_factor_is_one_more_lr_mult_of_it_alone() -> None:
    solver, feeds = solver_of("momentum: 0.9"), batches(5)
    factored = compile_training(net_of(TWO_LAYERS % (1, 2)), solver, n_threads=1, with_blob_factors=True)
    arguments = {"step": 0, "n_steps": 5, "rate_scale": 1.0, "seed": 0, "worker": 0, "feeds": feeds}
    for factor in (3.0, 0.5):
        larger = compile_training(net_of(TWO_LAYERS % (factor, 2 * factor)), solver, n_threads=1)
        expected, _ = larger.run(first_state(larger), **arguments)
        factored_state, _ = factored.run(
            first_state(factored), blob_factors=np.float32([1, 1, factor, factor]), **arguments
        )
        np.testing.assert_allclose(factored_state.params_view(), expected.params_view(), rtol=1e-5, atol=1e-7)
    plain = compile_training(net_of(TWO_LAYERS % (1, 2)), solver, n_threads=1)
    without, _ = factored.run(first_state(factored), **arguments)
    assert without.params_view().tolist() == plain.run(first_state(plain), **arguments)[0].params_view().tolist()


def test_draws_repeat_by_seed_and_differ_by_step_worker_and_seed() -> None:
    masks = dropped(0, 1, 0)
    assert np.array_equal(masks, dropped(0, 1, 0))
    assert not np.array_equal(masks[0], masks[1])
    assert np.array_equal(dropped(1, 1, 0)[0], masks[1])  # the clock decides, not the call
    assert not np.array_equal(masks, dropped(0, 1, 1))
    assert not np.array_equal(masks, dropped(0, 2, 0))


def test_draws_differ_by_pass() -> None:
    net = net_of(DROPOUT.replace('bottom: "data" top: "ip"', 'bottom: "drop" top: "ip"'))
    function = compile_training(net, solver_of("iter_size: 2"), n_threads=1, with_grad_norm=True)
    feeds = {"data": np.ones((2, 2, 400), np.float32)}
    old_state = first_state(function)
    new_state, _ = run_steps(function, old_state, feeds)
    entry = net.params.entry("ip", 0)
    steps = (old_state.params_view() - new_state.params_view())[entry.offset : entry.stop]
    # Two samples in two passes with values 0 or 2: five levels if the passes differ, three if they repeat.
    assert len(np.unique(np.round(steps, 5))) == 5


def test_statistics_advance_in_every_pass_and_take_no_decay() -> None:
    text = """
    layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 4 dim: 2 } } }
    layer { name: "bn" type: "BatchNorm" bottom: "data" top: "bn" }
    layer { name: "ip" type: "InnerProduct" bottom: "bn" top: "ip" inner_product_param { num_output: 1 } }
    layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 1 }
    """
    net = net_of(text)
    function = compile_training(net, solver_of("iter_size: 3 weight_decay: 0.5 momentum: 0.9"), n_threads=1)
    feeds = {"data": np.random.default_rng(0).normal(size=(6, 4, 2)).astype(np.float32)}
    state, _ = run_steps(function, function.initial_state(np.zeros(net.params.n_params, np.float32)), feeds)
    blobs = net.params.views(state.params_view())
    factor, total = 0.0, np.zeros(2)
    for batch in feeds["data"].astype(np.float64):
        factor, total = 0.999 * factor + 1, 0.999 * total + batch.mean(axis=0)
    np.testing.assert_allclose(blobs["bn[2]"], [factor], rtol=1e-6)
    np.testing.assert_allclose(blobs["bn[0]"], total, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("solver", "last_history"),
    [
        ('type: "SGD" momentum: 0.9', lambda first, second: 0 * second),
        ('type: "AdaGrad"', lambda first, second: 0.25 * (first**2 + second**2)),
        ('type: "Adam" momentum: 0.9', lambda first, second: 0.1 * 0.5 * (0.9 * first + second)),
    ],
)
def test_weight_decay_fills_the_history_of_statistics_and_leaves_them(solver: str, last_history) -> None:
    text = """
    layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 4 dim: 2 } } }
    layer { name: "bn" type: "BatchNorm" bottom: "data" top: "bn" }
    layer { name: "ip" type: "InnerProduct" bottom: "bn" top: "ip" inner_product_param { num_output: 1 } }
    layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 1 }
    """
    net = net_of(text)
    function = compile_training(net, solver_of(f"{solver} weight_decay: 0.5"), n_threads=1)
    feeds = {"data": np.random.default_rng(0).normal(size=(2, 4, 2)).astype(np.float32)}
    state, _ = run_steps(function, function.initial_state(np.zeros(net.params.n_params, np.float32)), feeds)
    first = feeds["data"][0].astype(np.float64).mean(axis=0)
    second = 0.999 * first + feeds["data"][1].astype(np.float64).mean(axis=0)
    np.testing.assert_allclose(net.params.views(state.params_view())["bn[0]"], second, rtol=1e-5, atol=1e-6)
    history = net.params.views(state.history_view()[0])["bn[0]"]
    np.testing.assert_allclose(history, last_history(first, second), rtol=1e-5, atol=1e-7)


def test_layer_state_goes_on_from_call_to_call() -> None:
    text = """
    layer { name: "in" type: "Input" top: "x" top: "cont"
      input_param { shape { dim: 2 dim: 1 dim: 2 } shape { dim: 2 dim: 1 } } }
    layer { name: "lstm" type: "LSTM" bottom: "x" bottom: "cont" top: "h"
      recurrent_param { num_output: 2 weight_filler { type: "uniform" min: -1 } } }
    layer { name: "loss" type: "Reduction" bottom: "h" top: "loss" loss_weight: 1 }
    """
    function = compile_training(net_of(text), solver_of(), n_threads=1)
    feeds = {"x": np.ones((4, 2, 1, 2), np.float32), "cont": np.ones((4, 2, 1), np.float32)}
    expected, _ = run_steps(function, first_state(function), feeds)
    state = first_state(function)
    for step in range(4):
        step_feeds = {name: array[step : step + 1] for name, array in feeds.items()}
        state, _ = run_steps(function, state, step_feeds, step=step)
    assert np.array_equal(state.params_view(), expected.params_view())
    assert any(np.asarray(tensor).any() for tensor in state.layer_state.values())


@pytest.mark.parametrize("with_step", [False, True])
def test_a_prepared_function_is_traced_once_and_trains_the_same(with_step: bool) -> None:
    prepared, fresh = softmax("momentum: 0.9 iter_size: 2"), softmax("momentum: 0.9 iter_size: 2")
    prepared.prepare(with_step=with_step)
    assert prepared.count_traces == 1
    feeds = batches(2)
    prepared_state, _ = run_steps(prepared, first_state(prepared), feeds)
    fresh_state, _ = run_steps(fresh, first_state(fresh), feeds)
    assert prepared.count_traces == 1
    assert np.array_equal(prepared_state.params_view(), fresh_state.params_view())


def test_calls_leave_nothing_in_memory() -> None:
    function, feeds = softmax("momentum: 0.9"), batches(1)

    def resident_bytes_after(n_calls: int) -> int:
        state = first_state(function)
        for step in range(n_calls):
            state, _ = run_steps(function, state, feeds, step=step, gives_away=True)
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    before = resident_bytes_after(500)
    assert resident_bytes_after(1500) - before < 400_000  # a tensor that TensorFlow keeps for each call: 1.2 MB


def test_wrong_feeds_are_named_with_the_shape_that_fits() -> None:
    function = softmax()
    with pytest.raises(ValueError, match=r'no feed for blob "label"; expected float32 \(2, 4\)'):
        run_steps(function, first_state(function), {"data": batches(2)["data"]})
    wrong = {"data": batches(2)["data"], "label": np.zeros((2, 5), np.float32)}
    with pytest.raises(ValueError, match=r'feed for blob "label" has shape \(2, 5\); expected \(2, 4\)'):
        run_steps(function, first_state(function), wrong)


def test_graph_holds_no_variables() -> None:
    function = softmax("momentum: 0.9 iter_size: 2")
    run_steps(function, first_state(function), batches(2))
    graph = function._calls._functions["run"].graph  # the only way to look inside
    definition = graph.as_graph_def()
    operations = {node.op for node in definition.node}
    operations |= {node.op for inner in definition.library.function for node in inner.node_def}
    assert not {name for name in operations if "Variable" in name or "VarHandle" in name}
    assert any("While" in name for name in operations)


@pytest.mark.parametrize(
    "options",
    [
        "momentum: 0.9 weight_decay: 0.1",
        "iter_size: 3 clip_gradients: 0.2 momentum: 0.9",
        'type: "Nesterov" momentum: 0.8',
        'type: "AdaGrad" delta: 0.01',
        'type: "RMSProp" rms_decay: 0.9',
        'type: "AdaDelta" momentum: 0.9 delta: 1e-3',
        'type: "Adam" momentum: 0.9 lr_policy: "step" gamma: 0.5 stepsize: 2',
    ],
)
def test_gradient_and_apply_are_a_step_in_two_parts(options: str) -> None:
    function = softmax(options)
    passes = function.solver.iter_size
    feeds = batches(4 * passes)
    expected_state, expected = run_steps(function, first_state(function), feeds, rate_scale=0.5)
    state = first_state(function)
    for step in range(4):
        batch = {name: array[step * passes : (step + 1) * passes] for name, array in feeds.items()}
        state, result = function.gradient(state, step=step, seed=0, worker=0, feeds=batch)
        state, rate = function.apply(state, result.gradient, step=step, rate_scale=0.5)
        assert result.loss == pytest.approx(expected.losses[step], rel=1e-5)
        assert rate == expected.lr[step]
    assert state.updates == expected_state.updates == 4
    np.testing.assert_allclose(state.params_view(), expected_state.params_view(), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(state.history_view(), expected_state.history_view(), rtol=1e-5, atol=1e-7)
    assert function.count_traces == 3, "one trace of each part"


def test_gradient_is_the_slow_loops_and_changes_nothing_else() -> None:
    function = softmax("iter_size: 2 clip_gradients: 0.01 weight_decay: 0.5")
    feeds = batches(2)
    weights = first_state(function).params_view().reshape(CLASSES, INPUTS).astype(float).tolist()
    results = [
        loss_and_gradient(weights, images.tolist(), labels.astype(int).tolist())
        for images, labels in zip(feeds["data"], feeds["label"], strict=True)
    ]
    state, result = function.gradient(first_state(function), step=0, seed=0, worker=0, feeds=feeds)
    expected = sum(np.array(gradient) for _, gradient in results).reshape(-1)
    np.testing.assert_allclose(result.gradient, expected, rtol=1e-5, atol=1e-7)  # neither clipped nor decayed
    assert result.loss == pytest.approx(sum(loss for loss, _ in results) / 2, rel=1e-5)
    assert np.array_equal(state.params_view(), first_state(function).params_view())
    assert not state.history_view().any()


def test_gradient_moves_statistics_and_is_zero_for_them() -> None:
    text = """
    layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 4 dim: 2 } } }
    layer { name: "bn" type: "BatchNorm" bottom: "data" top: "bn" }
    layer { name: "ip" type: "InnerProduct" bottom: "bn" top: "ip" inner_product_param { num_output: 1 } }
    layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 1 }
    """
    function = compile_training(net_of(text), solver_of("iter_size: 2"), n_threads=1)
    feeds = {"data": np.random.default_rng(0).normal(size=(2, 4, 2)).astype(np.float32)}
    zeros = function.initial_state(np.zeros(function.net.params.n_params, np.float32))
    state, result = function.gradient(zeros, step=0, seed=0, worker=0, feeds=feeds)
    blobs = function.net.params.views(state.params_view())
    np.testing.assert_allclose(blobs["bn[2]"], [1.999], rtol=1e-6)
    gradients = function.net.params.views(result.gradient)
    assert not any(gradients[f"bn[{index}]"].any() for index in range(3))
    assert gradients["ip[1]"].any()
    moved, _ = function.apply(state, result.gradient, step=0, rate_scale=1.0)
    assert np.array_equal(function.net.params.views(moved.params_view())["bn[0]"], blobs["bn[0]"])


def test_prepared_parts_are_traced_once() -> None:
    function = softmax()
    function.prepare_parts()
    state, result = function.gradient(first_state(function), step=0, seed=0, worker=0, feeds=batches(1))
    function.apply(state, result.gradient, step=0, rate_scale=1.0)
    assert function.count_traces == 2


@pytest.mark.parametrize("slot", ["params", "history"])
def test_a_fresh_vector_from_outside_is_not_copied(slot: str) -> None:
    """An exchange hands over parameters and momentum before each run."""
    net = net_of(DROPOUT.replace("num_output: 1 ", "num_output: 500 bias_term: false "))
    function = compile_training(net, solver_of("momentum: 0.5"), n_threads=1)
    feeds = {"data": np.ones((1, 2, 400), np.float32)}
    state, _ = run_steps(function, function.initial_state(np.ones(net.params.n_params, np.float32)), feeds)
    vector = np.frombuffer(bytearray(4 * net.params.n_params + 64), np.uint8)
    start = -vector.ctypes.data % 64
    vector = vector[start : start + 4 * net.params.n_params].view(np.float32)
    vector[:] = 0.25
    tracemalloc.start()
    try:
        changed = {"params": vector} if slot == "params" else {"history": function.history_of([vector])}
        new_state, _ = run_steps(function, replace(state, **changed), feeds)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < vector.nbytes / 4
    copied = {"params": vector.copy()} if slot == "params" else {"history": vector[np.newaxis].copy()}
    expected, _ = run_steps(function, replace(state, **copied), feeds)
    np.testing.assert_array_equal(new_state.params_view(), expected.params_view())
