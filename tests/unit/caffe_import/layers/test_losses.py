"""Euclidean, sigmoid cross entropy, hinge, infogain, multinomial and contrastive loss against loops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from caffe_import.errors import WeightsError
from caffe_import.proto import caffe_pb2
from tests.reference.layer_check import check_layer, define, refusal, run_layer, spread_values
from tests.reference.slow_losses import (
    slow_contrastive_loss,
    slow_euclidean_loss,
    slow_hinge_loss,
    slow_infogain_loss,
    slow_multinomial_loss,
    slow_sigmoid_cross_entropy,
    slow_softmax,
)

pytestmark = pytest.mark.tf


@pytest.mark.parametrize("shape", [(3, 4), (2, 2, 2, 2), (5,)])
@pytest.mark.parametrize("channels_last", [False, True])
def test_euclidean(shape: tuple[int, ...], channels_last: bool) -> None:
    check_layer(
        'top: "loss" type: "EuclideanLoss"',
        lambda a, b: [slow_euclidean_loss(a, b)],
        [spread_values(*shape, seed=1), spread_values(*shape, seed=2)],
        channels_last=channels_last,
    )


@pytest.mark.parametrize("channels_last", [False, True])
def test_euclidean_pairs_values_in_caffes_order(channels_last: bool) -> None:
    check_layer(
        'top: "loss" type: "EuclideanLoss"',
        lambda a, b: [slow_euclidean_loss(a, b)],
        [spread_values(2, 2, 3, 1, seed=1), spread_values(2, 3, 1, 2, seed=2)],
        channels_last=channels_last,
    )


def test_euclidean_compares_values_per_sample_only() -> None:
    text = 'top: "loss" type: "EuclideanLoss"'
    assert define(text, (4, 2, 3), (4, 6)).top_shapes == ((),)
    assert refusal(text, (4, 2), (4, 3)).endswith(
        '"x0" (4, 2) and "x1" (4, 3) must have the same number of values per sample'
    )


@pytest.mark.parametrize("mode", [None, "FULL", "VALID", "BATCH_SIZE", "NONE"])
@pytest.mark.parametrize("ignore", [None, 1])
def test_sigmoid_cross_entropy(mode: str | None, ignore: int | None) -> None:
    options = ("" if mode is None else f"normalization: {mode} ") + (
        "" if ignore is None else f"ignore_label: {ignore}"
    )
    targets = [[0, 1, 1], [0.0, 0, 1]] if ignore is not None else [[0, 1, 0.3], [0.9, 0, 1]]
    check_layer(
        f'top: "loss" type: "SigmoidCrossEntropyLoss" loss_param {{ {options} }}',
        lambda x, t: [slow_sigmoid_cross_entropy(x, t, ignore=ignore, mode=mode or "BATCH_SIZE")],
        [spread_values(2, 3, gap=0.5), targets],
        no_gradient=(1,),
    )


def test_sigmoid_cross_entropy_of_large_scores_is_finite() -> None:
    run = run_layer('top: "loss" type: "SigmoidCrossEntropyLoss"', [[[300.0, -300.0]], [[0.0, 1.0]]])
    np.testing.assert_allclose(run.tops[0], 600, rtol=1e-6)


@pytest.mark.parametrize("norm", [1, 2])
def test_hinge(norm: int) -> None:
    check_layer(
        f'top: "loss" type: "HingeLoss" hinge_loss_param {{ norm: L{norm} }}',
        lambda x, y: [slow_hinge_loss(x, y, norm=norm)],
        [spread_values(4, 3, gap=0.31), [0, 2, 1, 1]],
        no_gradient=(1,),
    )


@pytest.mark.parametrize(
    ("shape", "axis", "labels"), [((4, 3), 1, (4,)), ((2, 3, 2, 2), 1, (2, 2, 2)), ((2, 2, 3), 2, (2, 2))]
)
@pytest.mark.parametrize("options", ["", "ignore_label: 1", "ignore_label: 1 normalization: BATCH_SIZE"])
def test_infogain(shape: tuple[int, ...], axis: int, labels: tuple[int, ...], options: str) -> None:
    rng = np.random.default_rng(2)
    ignore = 1 if "ignore" in options else None
    mode = "BATCH_SIZE" if "BATCH" in options else "VALID"
    check_layer(
        f'top: "loss" type: "InfogainLoss" infogain_loss_param {{ axis: {axis} }} loss_param {{ {options} }}',
        lambda x, y, h: [slow_infogain_loss(x, y, h.reshape(3, 3), axis, ignore=ignore, mode=mode)],
        [spread_values(*shape), rng.integers(0, 3, labels), rng.uniform(0.1, 1, (1, 1, 3, 3))],
        no_gradient=(1, 2),
    )


def test_infogain_matrix_from_a_file(tmp_path: Path) -> None:
    matrix = np.random.default_rng(3).uniform(0.1, 1, (3, 3)).astype(np.float32)
    source = tmp_path / "h.binaryproto"
    source.write_bytes(
        caffe_pb2.BlobProto(num=1, channels=1, height=3, width=3, data=matrix.reshape(-1).tolist()).SerializeToString()
    )
    text = (
        f'top: "loss" top: "prob" type: "InfogainLoss" infogain_loss_param {{ source: "{source}" }} '
        "loss_weight: 1 loss_weight: 0"
    )
    x = spread_values(2, 3)
    run = check_layer(
        text,
        lambda x, y: [slow_infogain_loss(x, y, matrix.astype(np.float64)), slow_softmax(x, 1)],
        [x, [2, 0]],
        no_gradient=(1,),
    )
    assert run.net.layers[-1].loss_weights == (1.0, 0.0)
    assert refusal(text, (2, 4), (2,)).endswith(f"{source} holds 9 values; expected 4 x 4")
    with pytest.raises(WeightsError, match=r"missing\.binaryproto: cannot be read"):
        define(text.replace("h.binaryproto", "missing.binaryproto"), (2, 3), (2,))


def test_infogain_needs_a_matrix_of_the_right_size() -> None:
    text = 'top: "loss" type: "InfogainLoss"'
    assert "the matrix must come from one of them" in refusal(text, (2, 3), (2,))
    assert refusal(text, (2, 3), (2,), (2, 2)).endswith('bottom "x2" has 4 values; expected 3 x 3')


def test_multinomial() -> None:
    probabilities = np.random.default_rng(4).uniform(0.1, 0.9, (3, 4))
    check_layer(
        'top: "loss" type: "MultinomialLogisticLoss"',
        lambda p, y: [slow_multinomial_loss(p, y)],
        [probabilities, [0, 3, 2]],
        no_gradient=(1,),
    )


def test_multinomial_floors_at_1e_20_in_value_and_gradient() -> None:
    run = run_layer('top: "loss" type: "MultinomialLogisticLoss"', [[[0.0, 1.0]], [0]])
    np.testing.assert_allclose(run.tops[0], -np.log(1e-20), rtol=1e-6)
    np.testing.assert_allclose(run.passes.blob_gradients["x0"], [[-1e20, 0]], rtol=1e-6)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("shape", [(6, 3), (6, 3, 1, 1)])
def test_contrastive(legacy: bool, shape: tuple[int, ...]) -> None:
    margin = 1.5
    options = f"margin: {margin} legacy_version: {str(legacy).lower()}"
    text = f'top: "loss" type: "ContrastiveLoss" contrastive_loss_param {{ {options} }}'
    similar = [1, 0, 1, 0, 0, 0]
    a, b = spread_values(*shape, seed=1, gap=0.09), spread_values(*shape, seed=2, gap=0.13)
    run = run_layer(text, [a, b, similar])
    np.testing.assert_allclose(
        run.tops[0], slow_contrastive_loss(a, b, similar, margin=margin, legacy=legacy), rtol=1e-5
    )
    # Backward_cpu by hand; not a difference quotient because Caffe adds 1e-4 to the distance.
    expected = np.zeros((6, 3))
    for n in range(6):
        difference = (a - b).reshape(6, 3)[n]
        squared = (difference**2).sum()
        if similar[n]:
            expected[n] = difference / 6
        elif legacy:
            expected[n] = -difference / 6 if margin - squared > 0 else 0
        elif margin - np.sqrt(squared) > 0:
            expected[n] = -(margin - np.sqrt(squared)) / (np.sqrt(squared) + 1e-4) * difference / 6
    assert np.abs(expected).sum(axis=1).min() == 0  # one pair lies beyond the margin
    np.testing.assert_allclose(run.passes.blob_gradients["x0"].reshape(6, 3), expected, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(run.passes.blob_gradients["x1"].reshape(6, 3), -expected, rtol=1e-4, atol=1e-7)


def test_contrastive_of_equal_vectors_is_finite() -> None:
    run = run_layer('top: "loss" type: "ContrastiveLoss"', [np.ones((1, 2)), np.ones((1, 2)), [0]])
    assert np.isfinite(run.passes.blob_gradients["x0"]).all()
