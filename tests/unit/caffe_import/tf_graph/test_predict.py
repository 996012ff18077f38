from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from caffe_import.errors import NetError
from caffe_import.files.prototxt import parse_net
from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.net.python_layers import python_layer
from caffe_import.tf_graph.predict import compile_forward

pytestmark = pytest.mark.tf

TEXT = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 2 bias_term: false } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""
W = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
X = np.random.default_rng(1).normal(size=(2, 3)).astype(np.float32)


def net() -> NetSpec:
    return build_net_spec(parse_net(TEXT), phase="TEST")


def test_outputs_are_the_nets_by_default() -> None:
    blobs = compile_forward(net(), n_threads=1)(W.reshape(-1), {"x": X})
    scores = np.exp(X @ W.T)
    assert list(blobs) == ["prob"]
    np.testing.assert_allclose(blobs["prob"], scores / scores.sum(axis=1, keepdims=True), rtol=1e-5)


def test_inner_blobs_by_name_and_one_trace() -> None:
    forward = compile_forward(net(), n_threads=1, outputs=["ip", "x"])
    for _ in range(3):
        blobs = forward(W.reshape(-1), {"x": X, "ignored": X})
    np.testing.assert_allclose(blobs["ip"], X @ W.T, rtol=1e-5)
    assert blobs["x"].tolist() == X.tolist()
    assert forward.count_traces == 1


def test_unknown_output_is_answered_with_the_nearest() -> None:
    with pytest.raises(NetError, match=r'has no blob "porb"; known: x, ip, prob; did you mean "prob"\?'):
        compile_forward(net(), n_threads=1, outputs=["porb"])


SCOPES: list[str] = []


@python_layer(module="tests_of_predict", name="Seen")
class Recorder:
    """Keeps the name of its operation."""

    def setup(self, param_str: str, bottom_shapes: tuple[tuple[int, ...], ...]) -> None: ...

    def reshape(self, bottom_shapes: tuple[tuple[int, ...], ...]) -> Sequence[tuple[int, ...]]:
        return [bottom_shapes[0]]

    def forward(self, bottoms: Sequence[Any], *, is_training: bool) -> Sequence[Any]:
        SCOPES.append(tf.identity(bottoms[0]).name)
        return [bottoms[0]]


@pytest.mark.parametrize(
    ("name", "scope"),
    [("ip", "ip"), ("inception_3a/1x1", "inception_3a/1x1"), ("_fc 6 (new)/", "fc_6_new"), ("_", "Python")],
)
def test_operations_carry_the_name_of_their_layer(name: str, scope: str) -> None:
    net_text = f"""
    layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ dim: 2 dim: 3 }} }} }}
    layer {{ name: "{name}" type: "Python" bottom: "x" top: "y"
             python_param {{ module: "tests_of_predict" layer: "Seen" }} }}
    """
    SCOPES.clear()
    compile_forward(build_net_spec(parse_net(net_text), phase="TEST"), n_threads=1)(np.zeros(0, np.float32), {"x": X})
    assert set(SCOPES) == {f"{scope}/Identity:0"}


def test_wrong_feeds_are_named() -> None:
    forward = compile_forward(net(), n_threads=1)
    with pytest.raises(ValueError, match=r'feed for blob "x" is missing; expected float32 \(2, 3\)'):
        forward(W.reshape(-1), {})
    with pytest.raises(ValueError, match=r'feed for blob "x" has shape \(3, 3\); expected float32 \(2, 3\)'):
        forward(W.reshape(-1), {"x": np.zeros((3, 3), np.float32)})


def test_moved_statistics_come_back_and_the_given_ones_stay() -> None:
    text = """
    layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
    layer { name: "bn" type: "BatchNorm" bottom: "x" top: "y" batch_norm_param { use_global_stats: false } }
    """
    spec = build_net_spec(parse_net(text), phase="TEST")
    params = np.zeros(spec.params.n_params, np.float32)
    passed = compile_forward(spec, n_threads=1).run(params, {"x": X}, layer_state={})
    np.testing.assert_allclose(np.asarray(passed.params)[:3], X.mean(axis=0), rtol=1e-5)
    assert not params.any()
