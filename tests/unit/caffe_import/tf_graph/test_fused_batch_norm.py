"""BatchNorm and Scale in one kernel: Caffe's numbers, and two kernels where something else needs the blob between."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from caffe_import.devices.compute_plan import PLAIN, ComputePlan, Placement
from caffe_import.files.prototxt import parse_solver
from caffe_import.net.net_spec import NetSpec
from caffe_import.solver.solver_spec import solver_spec
from caffe_import.tf_graph.builder import build_forward, fed_blobs
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.predict import compile_forward
from caffe_import.tf_graph.train_step import compile_training
from tests.reference.parsed_net import net_of
from tests.reference.slow_normalization import (
    slow_batch_norm,
    slow_batch_norm_scale,
    slow_batch_norm_scale_gradients,
    slow_scale,
)

pytestmark = pytest.mark.tf

SHAPE = (4, 3, 5, 6)
EPS, FRACTION = 1e-3, 0.9
_ROUNDING = 2e-6
"""Of the largest value."""
DIMS = " ".join(f"dim: {extent}" for extent in SHAPE)
SUMS = (np.array([0.5, -1.0, 2.0]), np.array([2.0, 3.0, 0.5]), np.array([1.5]))
FACTORS, BIASES = np.array([0.7, -1.3, 2.0]), np.array([0.1, -0.4, 0.0])


def normalised_net(
    *, batch_norm: str = "b", scale: str = "s", options: str = "", behind: str = "", bias: str = "true"
) -> str:
    """Return a net whose bottom of BatchNorm is a parameter: the parameter's gradient is the bottom's."""
    return f"""
    layer {{ name: "in" type: "Input" top: "target" input_param {{ shape {{ {DIMS} }} }} }}
    layer {{ name: "x" type: "Parameter" top: "x" parameter_param {{ shape {{ {DIMS} }} }} }}
    layer {{ name: "bn" type: "BatchNorm" bottom: "x" top: "{batch_norm}"
      batch_norm_param {{ eps: {EPS} moving_average_fraction: {FRACTION} {options} }} }}
    layer {{ name: "scale" type: "Scale" bottom: "{batch_norm}" top: "{scale}" scale_param {{ bias_term: {bias} }} }}
    {behind}
    layer {{ name: "loss" type: "EuclideanLoss" bottom: "{scale}" bottom: "target" top: "loss" }}
    """


def random_values(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(1.5, 2, SHAPE)


def parameter_vector(net: NetSpec) -> np.ndarray:
    """Return the parameter vector of ``text``'s net."""
    blobs = [random_values(1), *SUMS, FACTORS, BIASES]
    return np.concatenate([blob.reshape(-1) for blob in blobs])[: net.params.n_params].astype(np.float32)


def kernels(net: NetSpec, layer: str, plan: ComputePlan = PLAIN, *, is_tapped: bool = False) -> set[str]:
    """Return the types of a layer's operations in the graph."""
    with tf.Graph().as_default() as graph:
        feeds = {name: tf.zeros(shape) for name, shape in fed_blobs(net).items()}
        forward = build_forward(net, plan, ["/CPU:0"] * plan.n_devices)
        entries = forward.entries(tf.zeros(net.params.n_params))
        tap: Callable[[str, Blob], Blob] | None = (lambda _, blob: blob) if is_tapped else None
        forward.on_entries(entries, {}, tf.zeros(2, tf.int32), feeds, tap)
        return {operation.type for operation in graph.get_operations() if operation.name.startswith(f"{layer}/")}


def assert_near(computed: np.ndarray, reference: np.ndarray) -> None:
    np.testing.assert_allclose(computed, reference, rtol=0, atol=_ROUNDING * np.abs(reference).max())


TOPS = {"own_tops": ("b", "s"), "in_place": ("x", "x"), "scale_in_place": ("b", "b")}


@pytest.mark.parametrize("tops", TOPS.values(), ids=TOPS)
@pytest.mark.parametrize("bias", ["true", "false"])
def test_a_step_has_caffes_gradients_and_sums(tops: tuple[str, str], bias: str) -> None:
    net = net_of(normalised_net(batch_norm=tops[0], scale=tops[1], bias=bias))
    assert kernels(net, "scale") == set()
    target, x = random_values(2), random_values(1).astype(np.float32).astype(np.float64)
    biases = BIASES if bias == "true" else np.zeros(3)
    top, means, variances = slow_batch_norm_scale(x, FACTORS, biases, EPS)
    of_x, of_factors, of_biases = slow_batch_norm_scale_gradients(x, FACTORS, EPS, (top - target) / SHAPE[0])
    train = compile_training(net, solver_spec(parse_solver('base_lr: 1 lr_policy: "fixed" max_iter: 9')), n_threads=1)
    feeds = {"target": target[np.newaxis].astype(np.float32)}
    state, step = train.gradient(train.initial_state(parameter_vector(net)), step=0, seed=1, worker=0, feeds=feeds)
    assert step.loss == pytest.approx(np.sum((top - target) ** 2) / 2 / SHAPE[0], rel=1e-5)
    gradients = net.params.views(step.gradient)
    assert_near(gradients["x[0]"], of_x)
    assert_near(gradients["scale[0]"], of_factors)
    if bias == "true":
        assert_near(gradients["scale[1]"], of_biases)
    m = x.size // SHAPE[1]
    moved = net.params.views(np.asarray(state.params_view()))
    assert_near(moved["bn[0]"], FRACTION * SUMS[0] + means)
    assert_near(moved["bn[1]"], FRACTION * SUMS[1] + variances * m / (m - 1))
    assert_near(moved["bn[2]"], FRACTION * SUMS[2] + 1)


@pytest.mark.parametrize("tops", TOPS.values(), ids=TOPS)
def test_stored_statistics_are_one_product_and_one_sum(tops: tuple[str, str]) -> None:
    net = net_of(normalised_net(batch_norm=tops[0], scale=tops[1]), phase="TEST")
    assert kernels(net, "scale") == set()
    assert {"Mul", "BiasAdd"} <= kernels(net, "bn")
    means, variances, (weight,) = SUMS
    x = random_values(1).astype(np.float32).astype(np.float64)
    normalized = slow_batch_norm(x, means / weight, variances / weight + EPS)
    top = slow_scale(normalized, FACTORS, BIASES)
    names = ("b", tops[1]) if tops == ("b", "s") else (tops[1],)
    feeds = {"target": np.zeros(SHAPE, np.float32)}
    blobs = compile_forward(net, n_threads=1, outputs=names)(parameter_vector(net), feeds)
    assert_near(blobs[tops[1]], top)
    if tops == ("b", "s"):  # of the other nets the Scale has overwritten the blob
        assert_near(blobs["b"], normalized)


def test_the_blob_between_is_right_for_who_asks_for_it() -> None:
    net = net_of(normalised_net())
    feeds = {"target": np.zeros(SHAPE, np.float32)}
    computed = compile_forward(net, n_threads=1, outputs=("b", "s")).run(parameter_vector(net), feeds, layer_state={})
    top, means, _ = slow_batch_norm_scale(random_values(1), FACTORS, BIASES, EPS)
    normalized, *_ = slow_batch_norm_scale(random_values(1), np.ones(3), np.zeros(3), EPS)
    assert_near(computed.blobs["s"], top)
    assert_near(computed.blobs["b"], normalized)
    assert_near(net.params.views(np.asarray(computed.params))["bn[0]"], FRACTION * SUMS[0] + means)


def test_an_overwritten_blob_between_is_what_the_gradient_before_it_reads() -> None:
    # Caffe's ReLU decides by its top's memory, where BatchNorm has written.
    relu = 'layer { name: "relu" type: "ReLU" bottom: "x" top: "x" relu_param { negative_slope: 0.25 } }'
    net = net_of(normalised_net(batch_norm="x").replace('layer { name: "bn"', f'{relu} layer {{ name: "bn"'))
    assert kernels(net, "scale") == set()
    target, x = random_values(2), random_values(1).astype(np.float32).astype(np.float64)
    rectified = np.where(x > 0, x, 0.25 * x)
    top, *_ = slow_batch_norm_scale(rectified, FACTORS, BIASES, EPS)
    normalized, *_ = slow_batch_norm_scale(rectified, np.ones(3), np.zeros(3), EPS)
    of_rectified, *_ = slow_batch_norm_scale_gradients(rectified, FACTORS, EPS, (top - target) / SHAPE[0])
    train = compile_training(net, solver_spec(parse_solver('base_lr: 1 lr_policy: "fixed" max_iter: 9')), n_threads=1)
    feeds = {"target": target[np.newaxis].astype(np.float32)}
    _, step = train.gradient(train.initial_state(parameter_vector(net)), step=0, seed=1, worker=0, feeds=feeds)
    assert_near(net.params.views(step.gradient)["x[0]"], np.where(normalized > 0, of_rectified, 0.25 * of_rectified))


FROZEN = "use_global_stats: true"


@pytest.mark.parametrize("options", ["", FROZEN])
def test_segments_and_devices_between_the_two_keep_two_kernels(options: str) -> None:
    net = net_of(normalised_net(options=options))
    names = [layer.name for layer in net.layers]
    unfused_plans = [
        ComputePlan(recompute=(("bn",), ("scale",))),
        ComputePlan(recompute=(("x", "bn"),)),
        ComputePlan(placement=Placement(2, {name: int(name in ("scale", "loss")) for name in names})),
    ]
    for plan in unfused_plans:
        assert {"Mul", "BiasAdd"} <= kernels(net, "scale", plan)
    together = [
        ComputePlan(recompute=(("bn", "scale"),)),
        ComputePlan(placement=Placement(2, {name: int(name not in ("in", "x")) for name in names})),
    ]
    for plan in together:
        assert kernels(net, "scale", plan) == set()


def test_tapped_blobs_keep_two_kernels() -> None:
    net = net_of(normalised_net())
    assert "Mul" in kernels(net, "scale", is_tapped=True)
    assert kernels(net, "scale") == set()


@pytest.mark.parametrize(
    ("segments", "options"),
    [
        ((("bn", "scale"),), ""),
        ((("bn", "scale"),), FROZEN),
        ((("bn",), ("scale",)), ""),
        ((("x", "bn", "scale"),), ""),
        ((("bn",),), FROZEN),
    ],
)
def test_recomputed_segments_give_the_plain_numbers(segments: tuple[tuple[str, ...], ...], options: str) -> None:
    net = net_of(normalised_net(options=options))
    solver = solver_spec(parse_solver('base_lr: 0.1 lr_policy: "fixed" max_iter: 9 momentum: 0.9'))
    feeds = {"target": np.stack([random_values(seed) for seed in (3, 4)]).astype(np.float32)}
    results = []
    for plan in (PLAIN, ComputePlan(recompute=segments)):
        train = compile_training(net, solver, n_threads=1, plan=plan)
        state, outputs = train.run(
            train.initial_state(parameter_vector(net)), step=0, n_steps=2, rate_scale=1.0, seed=3, worker=0, feeds=feeds
        )
        results.append((np.asarray(state.params_view()), outputs.losses))
    (plain, losses), (recomputed, losses_again) = results
    assert_near(recomputed, plain)
    assert_near(losses_again, losses)
    assert not np.array_equal(plain, parameter_vector(net))
