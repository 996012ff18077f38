from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from caffe_import.files.prototxt import parse_solver
from caffe_import.net.net_spec import NetSpec
from caffe_import.solver.solver_spec import solver_spec
from caffe_import.tf_graph.predict import compile_forward
from caffe_import.tf_graph.train_step import compile_training
from tests.reference.parsed_net import net_of

pytestmark = pytest.mark.tf

N, INPUTS, HIDDEN = 3, 4, 2

FROZEN_BELOW = """
%s
layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 3 dim: 4 } } }
layer { name: "low" type: "InnerProduct" bottom: "data" top: "low" param { lr_mult: 0 }
  inner_product_param { num_output: 2 bias_term: false } }
layer { name: "high" type: "InnerProduct" bottom: "low" top: "high"
  inner_product_param { num_output: 1 bias_term: false } }
layer { name: "loss" type: "Reduction" bottom: "high" top: "loss" loss_weight: 1 }
"""
SHARED = """
layer { name: "in" type: "Input" top: "x" top: "y"
  input_param { shape { dim: 3 dim: 4 } shape { dim: 3 dim: 4 } } }
layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" param { name: "w" %s }
  inner_product_param { num_output: 1 bias_term: false } }
layer { name: "b" type: "InnerProduct" bottom: "y" top: "b" param { name: "w" %s }
  inner_product_param { num_output: 1 bias_term: false } }
layer { name: "sum" type: "Eltwise" bottom: "a" bottom: "b" top: "sum" }
layer { name: "loss" type: "Reduction" bottom: "sum" top: "loss" loss_weight: 1 }
"""
FROZEN_LSTM = """
layer { name: "in" type: "Input" top: "data" top: "cont"
  input_param { shape { dim: 3 dim: 1 dim: 2 } shape { dim: 3 dim: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" param { lr_mult: %s }
  inner_product_param { num_output: 1 bias_term: false axis: 2 } }
layer { name: "lstm" type: "LSTM" bottom: "ip" bottom: "cont" top: "h"
  param { lr_mult: 0 } param { lr_mult: 0 } param { lr_mult: 0 } recurrent_param { num_output: 1 } }
layer { name: "loss" type: "Reduction" bottom: "h" top: "loss" loss_weight: 1 }
"""
PARAMETER = """
layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 3 } } }
layer { name: "p" type: "Parameter" top: "p" parameter_param { shape { dim: 3 } } }
layer { name: "product" type: "Eltwise" bottom: "data" bottom: "p" top: "product" eltwise_param { operation: PROD } }
layer { name: "loss" type: "Reduction" bottom: "product" top: "loss" loss_weight: 1 }
"""


def one_step(
    net: NetSpec, params: np.ndarray, feeds: dict[str, np.ndarray], solver: str = ""
) -> tuple[np.ndarray, float]:
    """Return the parameters after one update at rate 1 and the norm before the clipping."""
    spec = solver_spec(parse_solver(f'base_lr: 1 lr_policy: "fixed" max_iter: 9 {solver}'))
    function = compile_training(net, spec, n_threads=1, with_grad_norm=True)
    state, outputs = function.run(
        function.initial_state(params), step=0, n_steps=1, rate_scale=1, seed=0, worker=0, feeds=feeds
    )
    assert outputs.grad_norm is not None
    return np.array(state.params_view()), float(outputs.grad_norm[0])


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def slow_gradients(params: np.ndarray, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of the sum of high . (low x) over the samples, number by number."""
    low, high = params[: HIDDEN * INPUTS].reshape(HIDDEN, INPUTS), params[HIDDEN * INPUTS :]
    of_low, of_high = np.zeros_like(low), np.zeros_like(high)
    for image in images:
        for k in range(HIDDEN):
            for j in range(INPUTS):
                of_low[k, j] += high[k] * image[j]
                of_high[k] += low[k, j] * image[j]
    return of_low, of_high


@pytest.mark.parametrize("forced", [False, True])
def test_a_frozen_blob_counts_in_the_norm_only_under_force_backward(*, forced: bool) -> None:
    net = net_of(FROZEN_BELOW % ("force_backward: true" if forced else ""))
    params, images = random(net.params.n_params), random(1, N, INPUTS, seed=1)
    of_low, of_high = slow_gradients(params, images[0])
    counted = [of_low, of_high] if forced else [of_high]
    norm = sqrt(sum(float(np.sum(np.square(g, dtype=np.float64))) for g in counted))
    new_params, clipped_norm = one_step(net, params, {"data": images}, "clip_gradients: 0.5")
    assert clipped_norm == pytest.approx(norm, rel=1e-5)
    np.testing.assert_array_equal(
        new_params[: HIDDEN * INPUTS], params[: HIDDEN * INPUTS]
    )  # the rate is 0 all the same
    expected = params[HIDDEN * INPUTS :] - of_high * 0.5 / norm
    np.testing.assert_allclose(new_params[HIDDEN * INPUTS :], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("owner", "sharer", "counted"), [("lr_mult: 0", "", ("y",)), ("", "lr_mult: 0", ("x",)), ("", "", ("x", "y"))]
)
def test_each_layer_of_a_shared_blob_uses_the_lr_mult_of_the_layer(
    owner: str, sharer: str, counted: tuple[str, ...]
) -> None:
    net = net_of(SHARED % (owner, sharer))
    feeds = {"x": random(1, N, INPUTS), "y": random(1, N, INPUTS, seed=1)}
    gradient = sum(feeds[name][0].sum(axis=0) for name in counted)
    params = random(INPUTS, seed=2)
    new_params, norm = one_step(net, params, feeds)
    assert norm == pytest.approx(float(np.linalg.norm(gradient)), rel=1e-5)
    rate = 1 if len(counted) == 2 else 0  # one explicit lr_mult holds for the blob
    np.testing.assert_allclose(new_params, params - rate * gradient, rtol=1e-5)


def finite_differences(net: NetSpec, params: np.ndarray, feeds: dict[str, np.ndarray]) -> np.ndarray:
    forward = compile_forward(net, n_threads=1)
    one_pass = {name: array[0] for name, array in feeds.items()}
    slopes = []
    for position in range(params.size):
        moved = [params.copy(), params.copy()]
        moved[0][position] += 0.05
        moved[1][position] -= 0.05
        up, down = (float(forward(vector, one_pass)["loss"]) for vector in moved)
        slopes.append((up - down) / 0.1)
    return np.array(slopes)


def test_a_frozen_lstm_over_learning_layers_counts_in_the_norm() -> None:
    feeds = {"data": random(1, 3, 1, 2), "cont": np.ones((1, 3, 1), np.float32)}
    net = net_of(FROZEN_LSTM % 1)
    params = random(net.params.n_params, seed=1)
    new_params, norm = one_step(net, params, feeds)
    slopes = finite_differences(net, params, feeds)
    assert norm == pytest.approx(float(np.linalg.norm(slopes)), rel=2e-3)  # the differences' own error
    assert norm > 1.05 * float(np.linalg.norm(slopes[:2]))  # the LSTM's share is there
    np.testing.assert_array_equal(new_params[2:], params[2:])


def test_an_lstm_with_nothing_to_learn_at_or_below_it_has_no_backward_pass() -> None:
    feeds = {"data": random(1, 3, 1, 2), "cont": np.ones((1, 3, 1), np.float32)}
    net = net_of(FROZEN_LSTM % 0)
    assert one_step(net, random(net.params.n_params, seed=1), feeds)[1] == 0


def test_a_clip_of_zero_stops_training_and_a_negative_one_is_none() -> None:
    net = net_of(FROZEN_BELOW % "")
    params, images = random(net.params.n_params), {"data": random(1, N, INPUTS, seed=1)}
    np.testing.assert_array_equal(one_step(net, params, images, "clip_gradients: 0")[0], params)
    free = one_step(net, params, images)[0]
    np.testing.assert_array_equal(one_step(net, params, images, "clip_gradients: -2")[0], free)


def test_of_several_passes_a_parameter_layer_takes_the_last_ones_gradient() -> None:
    feeds = {"data": random(2, 3)}
    new_params, norm = one_step(net_of(PARAMETER), np.zeros(3, np.float32), feeds, "iter_size: 2")
    np.testing.assert_allclose(new_params, -feeds["data"][1] / 2, rtol=1e-6)
    assert norm == pytest.approx(float(np.linalg.norm(feeds["data"][1])), rel=1e-5)
