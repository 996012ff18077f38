"""Long sequences run in a loop over blocks of steps, short sequences unrolled: the same numbers, and a graph of
constant size.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from caffe_import.files.prototxt import parse_net
from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.tf_graph.builder import build_forward, initial_layer_state
from caffe_import.tf_graph.gradients import Passes, run_passes
from caffe_import.tf_graph.operations import recurrent_steps
from caffe_import.tf_graph.predict import compile_fixed_forward

pytestmark = pytest.mark.tf


def recurrent_net(kind: str, n_steps: int, *, static: bool = False) -> NetSpec:
    shape = "shape { dim: 2 dim: 4 }" if static else ""
    names = 'top: "static"' if static else ""
    bottom = 'bottom: "static"' if static else ""
    return build_net_spec(
        parse_net(
            f"""force_backward: true
            layer {{ name: "in" type: "Input" top: "x" top: "cont" {names}
              input_param {{ shape {{ dim: {n_steps} dim: 2 dim: 3 }} shape {{ dim: {n_steps} dim: 2 }} {shape} }} }}
            layer {{ name: "r" type: "{kind}" bottom: "x" bottom: "cont" {bottom} top: "h"
              recurrent_param {{ num_output: 3 }} }}
            layer {{ name: "loss" type: "EuclideanLoss" bottom: "h" bottom: "x" top: "loss" }}"""
        ),
        phase="TRAIN",
    )


def passes_of(net: NetSpec) -> Passes:
    rng = np.random.default_rng(0)
    feeds = {name: rng.normal(size=shape).astype(np.float32) for name, shape in net.inputs.items()}
    feeds["cont"] = (rng.random(net.inputs["cont"]) > 0.1).astype(np.float32)
    params = rng.normal(0, 0.5, net.params.n_params).astype(np.float32)
    state = {name: rng.normal(size=array.shape).astype(np.float32) for name, array in initial_layer_state(net).items()}
    return run_passes(net, params, feeds, layer_state=state, top_gradients={})


@pytest.mark.parametrize(
    ("kind", "n_steps", "static"),
    [
        ("RNN", 6, False),  # a whole number of blocks
        ("LSTM", 8, True),  # and a rest
        pytest.param("LSTM", 40, False, marks=pytest.mark.long),
        pytest.param("RNN", 37, True, marks=pytest.mark.long),
    ],
)
def test_the_loop_gives_the_numbers_of_the_unrolled_steps(
    kind: str, n_steps: int, static: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = recurrent_net(kind, n_steps, static=static)
    monkeypatch.setattr(recurrent_steps, "UNROLLED_STEPS", 3)
    looped = passes_of(net)
    monkeypatch.setattr(recurrent_steps, "UNROLLED_STEPS", n_steps)
    unrolled = passes_of(net)
    np.testing.assert_allclose(looped.blobs["h"], unrolled.blobs["h"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(looped.param_gradients, unrolled.param_gradients, rtol=1e-4, atol=1e-5)
    gradient = looped.blob_gradients["x"]
    assert gradient is not None
    np.testing.assert_allclose(gradient, unrolled.blob_gradients["x"], rtol=1e-4, atol=1e-5)
    for name, value in looped.layer_state.items():
        np.testing.assert_allclose(value, unrolled.layer_state[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
def test_transposed_weights_give_the_same_numbers(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net = recurrent_net(kind, 3)
    by_rows = passes_of(net)
    monkeypatch.setattr(recurrent_steps, "STREAMS_TO_TRANSPOSE", 1)
    transposed = passes_of(net)
    np.testing.assert_allclose(transposed.blobs["h"], by_rows.blobs["h"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(transposed.param_gradients, by_rows.param_gradients, rtol=1e-4, atol=1e-5)
    feeds = {name: transposed.blobs[name] for name in net.inputs}
    fixed = compile_fixed_forward(net, transposed.params, n_threads=1, outputs=["h"])
    from_zeros = run_passes(net, transposed.params, feeds, layer_state=initial_layer_state(net), top_gradients={})
    np.testing.assert_allclose(fixed(feeds)["h"], from_zeros.blobs["h"], rtol=1e-5, atol=1e-6)


def graph_of(net: NetSpec) -> tf.compat.v1.GraphDef:
    """Return forward and backward pass; the loop's functions are in the graph's library."""
    forward = build_forward(net)
    specs = {name: tf.TensorSpec(shape, tf.float32) for name, shape in net.inputs.items()}
    state = {name: tf.TensorSpec(array.shape, tf.float32) for name, array in initial_layer_state(net).items()}

    @tf.function(input_signature=[tf.TensorSpec((net.params.n_params,)), state, specs], autograph=False)
    def both(params, state, feeds):
        loss = forward(params, state, tf.zeros(2, tf.int32), feeds).loss
        return tf.gradients(loss, params)

    return both.get_concrete_function().graph.as_graph_def(add_shapes=True)


def size_of_graph(net: NetSpec) -> int:
    definition = graph_of(net)
    return len(definition.node) + sum(len(inner.node_def) for inner in definition.library.function)


@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
def test_the_gradient_of_weights_takes_one_product_for_all_steps(kind: str) -> None:
    net = recurrent_net(kind, 7)
    blobs = [entry for entry in net.params.entries if entry.kind == "weight" and len(entry.shape) == 2]
    products = [node for node in graph_of(net).node if node.op == "MatMul" and node.attr["transpose_a"].b]
    assert len(products) == len(blobs)


def test_the_graph_does_not_grow_with_the_steps() -> None:
    assert size_of_graph(recurrent_net("LSTM", 64)) == size_of_graph(recurrent_net("LSTM", 640))
