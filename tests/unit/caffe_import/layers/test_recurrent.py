"""LSTM, RNN and LSTMUnit against loops over steps and streams; what they carry from pass to pass."""

from __future__ import annotations

import numpy as np
import pytest

from caffe_import.tf_graph.gradients import run_passes
from tests.reference.layer_check import FORWARD_BOUND, assert_close, check_layer, define, refusal, run_layer
from tests.reference.slow_recurrent import slow_lstm, slow_rnn

pytestmark = pytest.mark.tf

T, N, D, S, H = 4, 2, 3, 2, 2
CONT = np.array([[0, 1], [1, 1], [1, 0], [1, 1]])


def rng() -> np.random.Generator:
    return np.random.default_rng(8)


def lstm_blobs(n_static: int = 0) -> list[np.ndarray]:
    shapes = [(4 * H, D), (4 * H,), *([(4 * H, n_static)] if n_static else []), (4 * H, H)]
    return [rng().normal(size=shape) for shape in shapes]


def rnn_blobs(n_static: int = 0) -> list[np.ndarray]:
    shapes = [(H, D), (H,), *([(H, n_static)] if n_static else []), (H, H), (H, H), (H,)]
    return [rng().normal(size=shape) for shape in shapes]


def test_lstm() -> None:
    check_layer(
        f'top: "n0" type: "LSTM" recurrent_param {{ num_output: {H} }}',
        lambda x, cont, w_x, b, w_h: [slow_lstm(x, cont, w_x, b, w_h)[0]],
        [rng().normal(size=(T, N, D)), CONT],
        lstm_blobs(),
        no_gradient=(1,),
    )


def test_lstm_with_static_input() -> None:
    check_layer(
        f'top: "n0" type: "LSTM" recurrent_param {{ num_output: {H} }}',
        lambda x, cont, static, w_x, b, w_s, w_h: [slow_lstm(x, cont, w_x, b, w_h, static=static, w_static=w_s)[0]],
        [rng().normal(size=(T, N, D)), CONT, rng().normal(size=(N, S))],
        lstm_blobs(S),
        no_gradient=(1,),
    )


def test_lstm_with_exposed_state() -> None:
    states = [rng().normal(size=(1, N, H)), rng().normal(size=(1, N, H))]
    check_layer(
        f'top: "n0" top: "h" top: "c" type: "LSTM" recurrent_param {{ num_output: {H} expose_hidden: true }}',
        lambda x, cont, h0, c0, w_x, b, w_h: slow_lstm(x, cont, w_x, b, w_h, h0=h0, c0=c0),
        [rng().normal(size=(T, N, D)), np.ones((T, N)), *states],
        lstm_blobs(),
        no_gradient=(1, 2, 3),
    )


def test_rnn() -> None:
    check_layer(
        f'top: "n0" type: "RNN" recurrent_param {{ num_output: {H} }}',
        lambda x, cont, *blobs: [slow_rnn(x, cont, *blobs)[0]],
        [rng().normal(size=(T, N, D, 1)), CONT],
        rnn_blobs(),
        no_gradient=(1,),
    )


def test_rnn_with_static_input_and_exposed_state() -> None:
    check_layer(
        f'top: "n0" top: "h" type: "RNN" recurrent_param {{ num_output: {H} expose_hidden: true }}',
        lambda x, cont, s, h0, w_x, b_h, w_s, w_h, w_o, b_o: slow_rnn(
            x, cont, w_x, b_h, w_h, w_o, b_o, static=s, w_static=w_s, h0=h0
        ),
        [rng().normal(size=(T, N, D)), CONT, rng().normal(size=(N, S)), rng().normal(size=(1, N, H))],
        rnn_blobs(S),
        no_gradient=(1, 3),
    )


@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
def test_state_goes_on_where_the_last_pass_ended(kind: str) -> None:
    x = rng().normal(size=(2 * T, N, D))
    blobs = lstm_blobs() if kind == "LSTM" else rnn_blobs()
    text = f'top: "n0" type: "{kind}" recurrent_param {{ num_output: {H} }}'
    first = run_layer(text, [x[:T], np.ones((T, N))], blobs)
    feeds = {"x0": x[T:].astype(np.float32), "x1": np.ones((T, N), np.float32)}
    second = run_passes(first.net, first.passes.params, feeds, layer_state=first.passes.layer_state, top_gradients={})
    slow = slow_lstm if kind == "LSTM" else slow_rnn
    expected = slow(x, np.ones((2 * T, N)), *blobs)[0]
    assert_close(second.blobs["n0"], expected[T:], FORWARD_BOUND, "second pass")


def test_lstm_unit() -> None:
    def reference(cell: np.ndarray, gates: np.ndarray, cont: np.ndarray) -> list[np.ndarray]:
        def sigmoid(values: np.ndarray) -> np.ndarray:
            return 1 / (1 + np.exp(-values))

        i, f, o, g = (gates[..., k * H : (k + 1) * H] for k in range(4))
        next_cell = cont[..., None] * sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
        return [next_cell, sigmoid(o) * np.tanh(next_cell)]

    check_layer(
        'top: "n0" top: "n1" type: "LSTMUnit"',
        reference,
        [rng().normal(size=(1, N, H)), rng().normal(size=(1, N, 4 * H)), [[1, 0]]],
        no_gradient=(2,),
    )


def test_definition() -> None:
    definition = define('top: "n0" type: "LSTM" recurrent_param { num_output: 5 }', (7, 2, 3, 4), (7, 2), (2, 6))
    assert definition.top_shapes == ((7, 2, 5),)
    assert [blob.shape for blob in definition.blobs] == [(20, 12), (20,), (20, 6), (20, 5)]
    assert definition.state_shapes == {"h": (1, 2, 5), "c": (1, 2, 5)}


@pytest.mark.parametrize(
    ("text", "shapes", "part"),
    [
        ('type: "LSTM"', [(4, 2, 3), (4, 2)], "recurrent_param.num_output=0: must be at least 1"),
        (
            'type: "LSTM" recurrent_param { num_output: 2 }',
            [(4, 2, 3), (4, 3)],
            "bottoms x (4, 2, 3) and cont (4, 3): expected (T, N, ...) and (T, N), time first",
        ),
        (
            'type: "LSTM" recurrent_param { num_output: 2 }',
            [(4, 2, 3), (4, 2), (3, 2)],
            "the static bottom has shape (3, 2); expected (N, ...) with N=2",
        ),
        (
            'type: "RNN" recurrent_param { num_output: 2 expose_hidden: true }',
            [(4, 2, 3), (4, 2), (1, 2, 2)],
            "with expose_hidden: true allowed: 3 or 4 (a static input) bottoms, 2 tops",
        ),
        (
            'top: "h" type: "RNN" recurrent_param { num_output: 2 expose_hidden: true }',
            [(4, 2, 3), (4, 2), (1, 2, 3)],
            "an initial state has shape (1, 2, 3); expected (1, 2, 2)",
        ),
        ('top: "h" type: "LSTMUnit"', [(1, 2, 3), (1, 2, 9), (1, 2)], "expected (1, N, H), (1, N, 4H), (1, N)"),
    ],
)
def test_wrong_bottoms_are_refused(text: str, shapes: list[tuple[int, ...]], part: str) -> None:
    assert part in refusal(f'top: "n0" {text}', *shapes)
