"""The switch comes back, and whatever cannot be repeated is named by its layer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.config import disable_op_determinism, is_op_determinism_enabled

from caffe_import.errors import NetError
from caffe_import.files.prototxt import parse_net, parse_solver
from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.net.python_layers import python_layer
from caffe_import.solver.solver_spec import solver_spec
from caffe_import.tf_graph.determinism import deterministic_ops, kernels_by_layer
from caffe_import.tf_graph.predict import compile_forward
from caffe_import.tf_graph.train_step import compile_training

pytestmark = pytest.mark.tf


@python_layer(module="tests_of_determinism", name="Noise")
class Noise:
    """Adds noise: drawn by an operation that looks for its seed when it is traced, or when it runs."""

    def setup(self, param_str: str, bottom_shapes: tuple[tuple[int, ...], ...]) -> None:
        self.when = param_str

    def reshape(self, bottom_shapes: tuple[tuple[int, ...], ...]) -> Sequence[tuple[int, ...]]:
        return [bottom_shapes[0]]

    def forward(self, bottoms: Sequence[Any], *, is_training: bool) -> Sequence[Any]:
        if self.when == "traced":
            return [bottoms[0] + tf.random.normal((2, 3))]
        drawn = tf.raw_ops.Multinomial(logits=tf.zeros((2, 4)), num_samples=3)
        return [bottoms[0] + tf.cast(drawn, tf.float32)]


def noisy(when: str) -> NetSpec:
    return build_net_spec(
        parse_net(
            'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } } '
            'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 3 } } '
            f'layer {{ name: "noise/1" type: "Python" bottom: "y" top: "z" python_param {{ layer: "Noise" '
            f'module: "tests_of_determinism" param_str: "{when}" }} }} '
            'layer { name: "sum" type: "Reduction" bottom: "z" top: "sum" loss_weight: 1 }'
        ),
        phase="TRAIN",
    )


def test_the_switch_comes_back_after_the_last_thread() -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with deterministic_ops():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    assert not is_op_determinism_enabled()
    with deterministic_ops():
        thread.start()
        assert inside.wait(60)
    assert is_op_determinism_enabled()
    leave.set()
    thread.join()
    assert not is_op_determinism_enabled()
    with pytest.raises(KeyError), deterministic_ops():
        raise KeyError
    assert not is_op_determinism_enabled()


def test_a_process_that_was_deterministic_before_stays_so() -> None:
    tf.config.experimental.enable_op_determinism()
    try:
        with deterministic_ops():
            assert is_op_determinism_enabled()
        assert is_op_determinism_enabled()
    finally:
        disable_op_determinism()


@pytest.mark.parametrize("when", ["traced", "run"])
def test_a_layer_that_draws_without_a_seed_is_named(when: str) -> None:
    net = noisy(when)
    feeds = {"x": np.ones((2, 3), np.float32)}
    params = np.zeros(net.params.n_params, np.float32)
    solver = solver_spec(parse_solver('base_lr: 0.1 lr_policy: "fixed" max_iter: 9'))
    said = r'^layer "noise/1" \(Python\): draws random numbers without a seed, .* use tf.random.stateless_\*'
    with deterministic_ops():
        with pytest.raises(NetError, match=said) as caught:
            compile_forward(net, n_threads=1)(params, feeds)
        assert caught.value.layer == "noise/1"
        training = compile_training(net, solver, n_threads=1)
        with pytest.raises(NetError, match=said):
            training.gradient(
                training.initial_state(params), step=0, seed=0, worker=0, feeds={"x": feeds["x"][np.newaxis]}
            )
    assert np.isfinite(compile_forward(net, n_threads=1)(params, feeds)["sum"])


@pytest.mark.parametrize(
    ("node", "who"),
    [
        ("while/body/_3/gradients/layer1_2/MatMul_grad/MatMul", 'layer "ip" (InnerProduct)'),
        ("update/AddN", 'net ""'),
    ],
)
def test_a_kernel_that_has_no_deterministic_form_is_named(node: str, who: str) -> None:
    refused = (
        f"Graph execution error: A deterministic GPU implementation of it is not available. [[{{{{node {node}}}}}]]"
    )
    with pytest.raises(NetError) as caught, kernels_by_layer(noisy("run")):
        raise tf.errors.UnimplementedError(None, None, refused)
    assert str(caught.value).startswith(f"{who}: TensorFlow has no deterministic kernel for its operation {node}")


def test_other_errors_pass() -> None:
    with pytest.raises(tf.errors.UnimplementedError), kernels_by_layer(noisy("run")):
        raise tf.errors.UnimplementedError(None, None, "no such kernel")
