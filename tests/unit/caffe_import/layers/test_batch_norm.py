"""BatchNorm: batch and stored statistics, and how a forward pass moves them."""

from __future__ import annotations

import numpy as np
import pytest

from caffe_import.files.prototxt import parse_net
from caffe_import.layers.batch_norm import moving_fractions
from caffe_import.net.net_spec import build_net_spec
from tests.reference.layer_check import check_layer, define, in_both_orders, refusal, run_layer
from tests.reference.slow_normalization import slow_batch_norm, slow_channel_statistics

pytestmark = pytest.mark.tf

TEXT = 'top: "n0" type: "BatchNorm"'


def batch_norm(options: str) -> str:
    return f"{TEXT} batch_norm_param {{ {options} }}"


@pytest.mark.parametrize(
    ("shape", "channels_last"), in_both_orders(((3, 2, 2, 3),), ((6, 3),), ((4, 2, 3),), ((2, 3, 2, 1, 2),))
)
def test_batch_statistics(shape: tuple[int, ...], channels_last: bool) -> None:
    x = np.random.default_rng(1).normal(2, 3, shape)
    n = shape[1]
    sums = [np.full(n, 0.5), np.full(n, 2.0), np.array([1.5])]

    def reference(x: np.ndarray, *_: np.ndarray) -> list[np.ndarray]:
        means, variances = slow_channel_statistics(x)
        return [slow_batch_norm(x, means, variances + 1e-3)]

    run = check_layer(
        batch_norm("eps: 1e-3 moving_average_fraction: 0.9"),
        reference,
        [x],
        sums,
        channels_last=channels_last,
        fixed_params=True,
    )
    means, variances = slow_channel_statistics(x)
    per_channel = x.size // n
    new_params = run.net.params.views(run.passes.params)
    np.testing.assert_allclose(new_params["layer[0]"], 0.9 * sums[0] + means, rtol=1e-5)
    unbiased = variances * per_channel / (per_channel - 1)
    np.testing.assert_allclose(new_params["layer[1]"], 0.9 * sums[1] + unbiased, rtol=1e-5)
    np.testing.assert_allclose(new_params["layer[2]"], 0.9 * sums[2] + 1, rtol=1e-6)


@pytest.mark.parametrize(("phase", "options"), [("TEST", ""), ("TRAIN", "use_global_stats: true")])
@pytest.mark.parametrize("channels_last", [False, True])
def test_stored_statistics(phase: str, options: str, channels_last: bool) -> None:
    sums = [np.array([1.0, -2.0]), np.array([3.0, 8.0]), np.array([2.0])]

    def reference(x: np.ndarray, means: np.ndarray, variances: np.ndarray, weight: np.ndarray) -> list[np.ndarray]:
        return [slow_batch_norm(x, means / weight, variances / weight + 1e-5)]

    run = check_layer(
        batch_norm(options),
        reference,
        [np.random.default_rng(2).normal(size=(3, 2, 2, 2))],
        sums,
        phase=phase,
        channels_last=channels_last,
        fixed_params=True,
    )
    new_params = run.net.params.views(run.passes.params)
    np.testing.assert_array_equal(new_params["layer[0]"], sums[0])


def test_no_batch_seen_counts_as_mean_and_variance_zero() -> None:
    run = run_layer(batch_norm("eps: 0.25"), [[[1.0, 3.0]]], [np.zeros(2), np.zeros(2), np.zeros(1)], phase="TEST")
    np.testing.assert_allclose(run.tops[0], [[2.0, 6.0]], rtol=1e-6)


def test_one_value_per_channel_has_no_correction() -> None:
    run = run_layer(TEXT, [[[4.0, 5.0]]], [np.zeros(2), np.ones(2), np.zeros(1)])
    new_params = run.net.params.views(run.passes.params)
    np.testing.assert_allclose(new_params["layer[1]"], 0.999, rtol=1e-6)
    np.testing.assert_array_equal(run.tops[0], 0)


def test_batch_statistics_in_test_move_the_sums_and_are_noted() -> None:
    options = batch_norm("use_global_stats: false")
    x = np.random.default_rng(3).normal(size=(4, 2))
    run = run_layer(options, [x], [np.zeros(2), np.zeros(2), np.zeros(1)], phase="TEST")
    assert run.net.params.views(run.passes.params)["layer[2]"] == 1
    assert "every test batch moves the stored statistics" in define(options, (4, 2), phase="TEST").notes[0]


def test_one_axis_is_one_channel() -> None:
    assert [blob.shape for blob in define(TEXT, (5,)).blobs] == [(1,), (1,), (1,)]
    run = run_layer(TEXT, [[1.0, 2.0, 3.0]], [np.zeros(1), np.zeros(1), np.zeros(1)])
    np.testing.assert_allclose(run.tops[0], np.array([-1, 0, 1]) / np.sqrt(2 / 3 + 1e-5), rtol=1e-5)


def test_statistics_are_marked_and_not_learned() -> None:
    assert {blob.kind for blob in define(TEXT, (2, 3)).blobs} == {"statistic"}
    assert "lr_mult=1" in refusal(f"{TEXT} param {{ lr_mult: 1 }}", (2, 3))


def test_layers_whose_statistics_move_are_named_with_their_fraction() -> None:
    layers = [
        'layer { name: "data" type: "Input" top: "x" input_param { shape { dim: 4 dim: 3 } } }',
        'layer { name: "moves" type: "BatchNorm" bottom: "x" top: "a"',
        "  batch_norm_param { moving_average_fraction: 0.5 } }",
        'layer { name: "fixed" type: "BatchNorm" bottom: "a" top: "b" batch_norm_param { use_global_stats: true } }',
    ]
    message = parse_net("\n".join(layers))
    assert moving_fractions(build_net_spec(message, phase="TRAIN")) == {"moves": 0.5}
    assert moving_fractions(build_net_spec(message, phase="TEST")) == {}
