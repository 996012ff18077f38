from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import tensorflow as tf

from caffe_import.errors import NetError
from caffe_import.net.net_spec import NetSpec
from caffe_import.tf_graph import emitters
from caffe_import.tf_graph.builder import build_forward, fed_blobs, initial_layer_state
from caffe_import.tf_graph.gradients import Passes, run_passes
from tests.reference.layer_text import inner_product
from tests.reference.parsed_net import net_of

pytestmark = pytest.mark.tf

INPUT = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }'

product = partial(inner_product, n=3, more="bias_term: false")


def passes(net: NetSpec, params: np.ndarray, **feeds: np.ndarray) -> Passes:
    return run_passes(net, params, feeds, layer_state=initial_layer_state(net), top_gradients={})


def reduction(bottom: str, top: str = "loss") -> str:
    return f'layer {{ name: "{top}" type: "Reduction" bottom: "{bottom}" top: "{top}" loss_weight: 2 }}'


X = np.array([[1.0, 2.0, 3.0], [-1.0, 0.5, 2.0]], np.float32)
W = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)


def test_entries_are_caffes_blobs_in_order() -> None:
    net = net_of(INPUT + product("a", "x") + product("b", "a"))
    vector = np.arange(18, dtype=np.float32)
    first, second = build_forward(net).entries(tf.constant(vector))
    assert first.numpy().tolist() == vector[:9].reshape(3, 3).tolist()
    assert second.numpy().tolist() == vector[9:].reshape(3, 3).tolist()


def test_loss_is_weight_times_the_sum_of_the_top() -> None:
    net = net_of(INPUT + product("a", "x") + reduction("a"))
    result = passes(net, W.reshape(-1), x=X)
    assert result.loss == pytest.approx(2 * (X @ W.T).sum(), rel=1e-5)


def test_gradients_of_a_shared_blob_add_up() -> None:
    share = 'param { name: "w" }'
    net = net_of(INPUT + product("a", "x", options=share) + product("b", "a", options=share) + reduction("b"))
    result = passes(net, W.reshape(-1), x=X)
    ones = np.full((2, 3), 2.0)
    expected = ones.T @ (X @ W.T) + (ones @ W).T @ X
    np.testing.assert_allclose(result.param_gradients.reshape(3, 3), expected, rtol=1e-5)


def test_frozen_blob_takes_no_gradient_but_passes_it_on() -> None:
    net = net_of(INPUT + product("a", "x") + product("b", "a", options="param { lr_mult: 0 }") + reduction("b"))
    result = passes(net, np.concatenate([W.reshape(-1), W.reshape(-1)]), x=X)
    assert result.param_gradients[:9].any()
    assert not result.param_gradients[9:].any()


def test_propagate_down_false_cuts_at_the_consumer_only() -> None:
    cut = "propagate_down: false"
    text = (
        INPUT
        + product("a", "x")
        + product("b", "a", options=cut)
        + product("c", "a")
        + reduction("b")
        + reduction("c", "loss2")
    )
    net = net_of(text)
    vector = np.concatenate([W.reshape(-1)] * 3)
    through_c = 2 * (np.ones((2, 3)) @ W).T @ X
    np.testing.assert_allclose(passes(net, vector, x=X).param_gradients[:9].reshape(3, 3), through_c, rtol=1e-5)


def test_labels_take_no_gradient() -> None:
    net = net_of(
        'force_backward: true layer { name: "in" type: "Input" top: "x" top: "y" '
        "input_param { shape { dim: 2 dim: 3 } shape { dim: 2 } } }"
        'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "x" bottom: "y" top: "loss" }'
    )
    result = passes(net, np.zeros(0, np.float32), x=X, y=np.float32([0, 2]))
    assert result.blob_gradients["y"] is None
    assert result.blob_gradients["x"] is not None


def test_in_place_layers_leave_the_last_content() -> None:
    relu = 'layer { name: "r" type: "ReLU" bottom: "a" top: "a" }'
    net = net_of(INPUT + product("a", "x") + relu)
    np.testing.assert_allclose(passes(net, W.reshape(-1), x=X).blobs["a"], np.maximum(X @ W.T, 0), rtol=1e-5)


def test_two_random_layers_draw_different_numbers() -> None:
    text = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 dim: 1000 } } }'
    text += "".join(f'layer {{ name: "d{i}" type: "Dropout" bottom: "x" top: "d{i}" }}' for i in (1, 2))
    result = passes(net_of(text), np.zeros(0, np.float32), x=np.ones((1, 1000), np.float32))
    assert 0.4 < (result.blobs["d1"] == result.blobs["d2"]).mean() < 0.6


def test_type_without_emitter_is_refused_before_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    net = net_of(INPUT + product("a", "x"))
    emitters.registered_emitters()
    monkeypatch.delitem(emitters._EMITTERS, "InnerProduct")
    with pytest.raises(NetError, match='layer "a": type InnerProduct can be read but not computed yet') as caught:
        build_forward(net)
    assert caught.value.layer == "a"


def test_fed_blobs_are_the_data_tops_without_an_emitter() -> None:
    dummy = 'layer { name: "d" type: "DummyData" top: "d" dummy_data_param { shape { dim: 4 } } }'
    assert fed_blobs(net_of(INPUT + dummy)) == {"x": (2, 3)}


def test_layer_state_starts_at_zero_under_layer_and_name() -> None:
    text = (
        'layer { name: "in" type: "Input" top: "x" top: "c" input_param '
        "{ shape { dim: 2 dim: 1 dim: 2 } shape { dim: 2 dim: 1 } } }"
        'layer { name: "lstm" type: "LSTM" bottom: "x" bottom: "c" top: "h" recurrent_param { num_output: 2 } }'
    )
    state = initial_layer_state(net_of(text))
    assert state
    assert all(name.startswith("lstm/") and not array.any() for name, array in state.items())


def test_a_layers_own_phase_goes_before_the_nets() -> None:
    dropout = 'layer {{ name: "{0}" type: "Dropout" bottom: "x" top: "{0}" {1} }}'
    result = passes(net_of(INPUT + dropout.format("net", "") + dropout.format("own", "phase: TEST")), W[:0], x=X)
    assert result.blobs["own"].tolist() == X.tolist()
    assert set(np.unique(result.blobs["net"] / X)) <= {0.0, 2.0}
