"""SoftmaxWithLoss: every normalisation, ignored labels, axes, Caffe's floor under the logarithm."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.layer_check import check_layer, define, refusal, run_layer, spread_values
from tests.reference.slow_losses import slow_softmax, slow_softmax_loss

pytestmark = pytest.mark.tf

TEXT = 'top: "loss" type: "SoftmaxWithLoss"'


@pytest.mark.parametrize(
    ("mode", "channels_last"),
    [("FULL", False), ("VALID", False), ("VALID", True), ("BATCH_SIZE", False), ("NONE", False)],
)
@pytest.mark.parametrize("ignore", [None, 1, 255])
def test_values_and_gradients(mode: str, ignore: int | None, channels_last: bool) -> None:
    labels = np.array([[[0, 1], [2, 1]], [[1, 2], [0, 0]]])
    if ignore == 255:
        labels[0, 0, 0] = 255  # not a class
    ignoring = "" if ignore is None else f"ignore_label: {ignore}"
    check_layer(
        f"{TEXT} loss_param {{ normalization: {mode} {ignoring} }}",
        lambda x, y: [slow_softmax_loss(x, y, ignore=ignore, mode=mode)],
        [spread_values(2, 3, 2, 2), labels],
        no_gradient=(1,),
        channels_last=channels_last,
    )


@pytest.mark.parametrize(
    ("shape", "axis", "labels"), [((4, 3), 1, (4, 1)), ((2, 3, 4), 2, (2, 3)), ((2, 3, 4), -1, (2, 3))]
)
def test_axis_and_label_shapes(shape: tuple[int, ...], axis: int, labels: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    check_layer(
        f"{TEXT} softmax_param {{ axis: {axis} }}",
        lambda x, y: [slow_softmax_loss(x, y, axis % x.ndim)],
        [spread_values(*shape), rng.integers(0, 3, labels)],
        no_gradient=(1,),
    )


@pytest.mark.parametrize(("normalize", "mode"), [("true", "VALID"), ("false", "BATCH_SIZE")])
def test_deprecated_normalize(normalize: str, mode: str) -> None:
    check_layer(
        f"{TEXT} loss_param {{ normalize: {normalize} ignore_label: 0 }}",
        lambda x, y: [slow_softmax_loss(x, y, ignore=0, mode=mode)],
        [spread_values(2, 3, 2, 1), [[[0], [1]], [[2], [2]]]],
        no_gradient=(1,),
    )
    definition = define(f"{TEXT} loss_param {{ normalize: {normalize} normalization: FULL }}", (2, 3), (2,))
    assert definition.options.loss.normalization == "FULL"  # the new field goes first


def test_all_ignored_gives_zero_not_nan() -> None:
    run = run_layer(f"{TEXT} loss_param {{ ignore_label: 7 }}", [spread_values(2, 3), [7, 7]])
    assert run.tops[0] == 0
    assert not run.passes.blob_gradients["x0"].any()


def test_saturated_loss_is_floored_but_its_gradient_is_not() -> None:
    run = run_layer(TEXT, [[[200.0, 0.0]], [1]])
    np.testing.assert_allclose(run.tops[0], -np.log(np.finfo(np.float32).tiny), rtol=1e-6)
    np.testing.assert_allclose(run.passes.blob_gradients["x0"], [[1.0, -1.0]], atol=1e-6)


@pytest.mark.parametrize("axis", [1, 2])
def test_second_top_holds_the_probabilities(axis: int) -> None:
    x = spread_values(2, 3, 3, 2)
    run = run_layer(f'{TEXT} top: "prob" softmax_param {{ axis: {axis} }}', [x, np.zeros((2, 3, 2))])
    np.testing.assert_allclose(run.tops[1], slow_softmax(x, axis), rtol=1e-5)


def test_labels_that_do_not_fit_are_refused() -> None:
    assert refusal(TEXT, (2, 3, 4, 4), (2, 4)).endswith(
        'bottom "x1" has shape (2, 4), 8 labels; expected 32: one for each position of bottom "x0" (2, 3, 4, 4) '
        "outside axis 1"
    )
    assert refusal(TEXT, (2, 3), (3,)).endswith('bottoms "x0" (2, 3) and "x1" (3) must have the same first axis')
