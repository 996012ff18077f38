"""Eltwise against loops, and who wins a tie."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.layer_check import check_layer, refusal, run_layer, spread_values

pytestmark = pytest.mark.tf


@pytest.mark.parametrize(
    ("options", "reference"),
    [
        ("", lambda a, b, c: a + b + c),
        ("coeff: 1 coeff: -2 coeff: 0.5", lambda a, b, c: a - 2 * b + 0.5 * c),
        ("operation: PROD", lambda a, b, c: a * b * c),
        ("operation: PROD stable_prod_grad: false", lambda a, b, c: a * b * c),
        ("operation: MAX", lambda a, b, c: np.vectorize(max)(a, b, c)),
    ],
)
@pytest.mark.parametrize("channels_last", [False, True])
def test_values_and_gradients(options: str, reference: object, channels_last: bool) -> None:
    values = spread_values(3, 2, 2, 2, 2)
    check_layer(
        f'top: "n0" type: "Eltwise" eltwise_param {{ {options} }}',
        lambda *bottoms: [reference(*bottoms)],
        list(values),
        channels_last=channels_last,
    )


def test_ties_go_to_the_second_blob_and_later_ones_must_be_larger() -> None:
    bottoms = [np.float32([[1, 1, 1, 2]]), np.float32([[1, 0, 1, 2]]), np.float32([[1, 1, 2, 2]])]
    run = run_layer(
        'top: "n0" type: "Eltwise" eltwise_param { operation: MAX }', bottoms, top_gradients={"n0": [[1, 1, 1, 1]]}
    )
    gradients = [run.passes.blob_gradients[f"x{k}"] for k in range(3)]
    np.testing.assert_array_equal(gradients, [[[0, 1, 0, 0]], [[1, 0, 0, 1]], [[0, 0, 1, 0]]])


def divided_gradients(bottoms: list[np.ndarray], top_gradient: np.ndarray) -> list[np.ndarray]:
    """eltwise_layer.cpp, Backward_cpu, stable_prod_grad false: caffe_div(top, bottom), then caffe_mul by top_diff."""
    gradients = [np.empty(bottom.shape, np.float32) for bottom in bottoms]
    with np.errstate(invalid="ignore"):
        for index in np.ndindex(top_gradient.shape):
            top = np.float32(1)
            for bottom in bottoms:
                top = top * bottom[index]
            for position, bottom in enumerate(bottoms):
                gradients[position][index] = top / bottom[index] * top_gradient[index]
    return gradients


@pytest.mark.parametrize("channels_last", [False, True])
def test_an_unstable_product_divides_zero_by_zero(channels_last: bool) -> None:
    bottoms = [np.float32(part) for part in spread_values(3, 2, 2, 2, 2)]
    bottoms[0].flat[[0, 3]] = 0
    bottoms[1].flat[[3, 5]] = 0
    top_gradient = np.float32(spread_values(2, 2, 2, 2, seed=8))
    top_gradient.flat[5] = 0
    run = run_layer(
        'top: "n0" type: "Eltwise" eltwise_param { operation: PROD stable_prod_grad: false }',
        bottoms,
        channels_last=channels_last,
        top_gradients={"n0": top_gradient},
    )
    for position, expected in enumerate(divided_gradients(bottoms, top_gradient)):
        bottom_gradient = run.passes.blob_gradients[f"x{position}"]
        np.testing.assert_allclose(bottom_gradient, expected, rtol=1e-5)
        assert np.isnan(bottom_gradient).sum() == (2, 2, 0)[position]


def test_a_stable_product_takes_the_other_bottoms_where_one_is_zero() -> None:
    run = run_layer(
        'top: "n0" type: "Eltwise" eltwise_param { operation: PROD }',
        [[[0.0, 3.0]], [[5.0, 0.0]]],
        top_gradients={"n0": [[2.0, 2.0]]},
    )
    np.testing.assert_array_equal(run.passes.blob_gradients["x0"], [[10, 0]])
    np.testing.assert_array_equal(run.passes.blob_gradients["x1"], [[0, 6]])


def test_wrong_options_are_refused() -> None:
    text = 'top: "n0" type: "Eltwise" eltwise_param'
    assert "has 1 coefficients for 2 bottoms" in refusal(f"{text} {{ coeff: 1 }}", (2, 3), (2, 3))
    assert "allowed with SUM" in refusal(f"{text} {{ operation: PROD coeff: 1 coeff: 1 }}", (2, 3), (2, 3))
    assert 'bottom "x1" has shape (2, 4); expected that of bottom "x0", (2, 3)' in refusal(
        f"{text} {{ }}", (2, 3), (2, 4)
    )
