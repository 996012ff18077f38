"""Element-wise layers against formulas, value by value; derivatives at kinks."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tests.reference.layer_check import (
    check_layer,
    define,
    in_both_orders,
    refusal,
    refusal_of_type,
    run_layer,
    spread_values,
)

pytestmark = pytest.mark.tf

Scalar = Callable[[float], float]

FORMULAS: dict[str, tuple[str, Scalar]] = {
    "ReLU": ('type: "ReLU"', lambda v: max(v, 0.0)),
    "ReLU slope": ('type: "ReLU" relu_param { negative_slope: 0.1 }', lambda v: v if v > 0 else 0.1 * v),
    "ReLU steep": ('type: "ReLU" relu_param { negative_slope: 1.5 }', lambda v: v if v > 0 else 1.5 * v),
    "ReLU6": ('type: "ReLU6"', lambda v: min(max(v, 0.0), 6.0)),
    "Sigmoid": ('type: "Sigmoid"', lambda v: 1 / (1 + math.exp(-v))),
    "TanH": ('type: "TanH"', math.tanh),
    "AbsVal": ('type: "AbsVal"', abs),
    "BNLL": ('type: "BNLL"', lambda v: math.log(1 + math.exp(v))),
    "ELU": ('type: "ELU" elu_param { alpha: 0.7 }', lambda v: v if v > 0 else 0.7 * (math.exp(v) - 1)),
    "Swish": ('type: "Swish" swish_param { beta: 1.5 }', lambda v: v / (1 + math.exp(-1.5 * v))),
    "Clip": ('type: "Clip" clip_param { min: -0.51 max: 0.72 }', lambda v: min(max(v, -0.51), 0.72)),
    "Exp": ('type: "Exp" exp_param { scale: 0.5 shift: 0.2 }', lambda v: math.exp(0.5 * v + 0.2)),
    "Exp base": ('type: "Exp" exp_param { base: 3 scale: 0.5 shift: 0.2 }', lambda v: 3 ** (0.5 * v + 0.2)),
    "Power": ('type: "Power" power_param { power: 2 scale: 0.5 shift: 0.3 }', lambda v: (0.3 + 0.5 * v) ** 2),
    "Power 1": ('type: "Power" power_param { scale: -2 shift: 1 }', lambda v: 1 - 2 * v),
    "Power 3": ('type: "Power" power_param { power: 3 }', lambda v: v**3),
    "Power 0": ('type: "Power" power_param { power: 0 shift: 5 }', lambda _: 1.0),
    "Power scale 0": ('type: "Power" power_param { power: 2 scale: 0 shift: 3 }', lambda _: 9.0),
}


@pytest.mark.parametrize(
    ("name", "channels_last"),
    [(name, False) for name in FORMULAS] + [(name, True) for name in ("ReLU slope", "ELU", "Power")],
)
def test_formula(name: str, channels_last: bool) -> None:
    text, formula = FORMULAS[name]
    check_layer(
        f'top: "n0" {text}',
        lambda x: [np.vectorize(formula)(x)],
        [spread_values(2, 3, 2, 2, gap=0.9 if name == "ReLU6" else 0.15)],
        channels_last=channels_last,
    )


@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 1, 3), (1, 2, 1, 2, 2)])
def test_any_rank(shape: tuple[int, ...]) -> None:
    check_layer('top: "n0" type: "TanH"', lambda x: [np.tanh(x)], [spread_values(*shape)])


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        ('type: "Log"', math.log),
        (
            'type: "Log" log_param { base: 10 scale: 2 shift: 0.5 }',
            lambda v: math.log10(2 * v + 0.5),
        ),
        ('type: "Power" power_param { power: -1.5 }', lambda v: v**-1.5),
        ('type: "Power" power_param { power: 0.5 scale: 2 shift: 1 }', lambda v: math.sqrt(1 + 2 * v)),
    ],
)
def test_formulas_of_positive_values(text: str, formula: Scalar) -> None:
    check_layer(f'top: "n0" {text}', lambda x: [np.vectorize(formula)(x)], [np.abs(spread_values(3, 4)) + 0.3])


def test_threshold_is_strict_and_takes_no_gradient() -> None:
    run = run_layer(
        'top: "n0" type: "Threshold" threshold_param { threshold: 0.5 }',
        [[[0.4, 0.5, 0.6, -1.0]]],
        top_gradients={"n0": [[1.0, 1.0, 1.0, 1.0]]},
    )
    np.testing.assert_array_equal(run.tops[0], [[0, 0, 1, 0]])
    gradient = run.passes.blob_gradients["x0"]
    assert gradient is None or not gradient.any()


@pytest.mark.parametrize(("shape", "channels_last"), in_both_orders(((2, 3, 2, 2),), ((4, 3),)))
@pytest.mark.parametrize("shared", [False, True])
def test_prelu(shape: tuple[int, ...], channels_last: bool, shared: bool) -> None:
    def reference(x: np.ndarray, slopes: np.ndarray) -> list[np.ndarray]:
        top = x.copy()
        for index in np.ndindex(*x.shape):
            if x[index] <= 0:
                top[index] *= slopes[()] if shared else slopes[index[1]]
        return [top]

    check_layer(
        f'top: "n0" type: "PReLU" prelu_param {{ channel_shared: {str(shared).lower()} }}',
        reference,
        [spread_values(*shape)],
        [np.float64(0.3) if shared else np.array([0.1, -0.2, 0.4])],
        channels_last=channels_last,
    )


def test_prelu_starts_at_a_quarter() -> None:
    (blob,) = define('top: "n0" type: "PReLU"', (2, 3)).blobs
    assert (blob.filler.type, blob.filler.value) == ("constant", 0.25)


@pytest.mark.parametrize(
    ("text", "slope"),
    [
        ('type: "ReLU"', 0.0),
        ('type: "ReLU" relu_param { negative_slope: 0.25 }', 0.25),
        ('type: "ELU" elu_param { alpha: 0.5 }', 0.5),
        ('type: "AbsVal"', 0.0),
        ('type: "Clip" clip_param { min: 0 max: 1 }', 1.0),
        ('type: "Clip" clip_param { min: -1 max: 0 }', 1.0),
    ],
)
def test_derivative_at_the_kink(text: str, slope: float) -> None:
    run = run_layer(f'top: "n0" {text}', [np.zeros((1, 2))], top_gradients={"n0": [[1.0, 2.0]]})
    np.testing.assert_allclose(run.passes.blob_gradients["x0"], [[slope, 2 * slope]])


def test_large_values_stay_finite() -> None:
    for text in ('type: "BNLL"', 'type: "ELU"', 'type: "Sigmoid"', 'type: "Swish"'):
        run = run_layer(f'top: "n0" {text}', [[[200.0, -200.0]]], top_gradients={"n0": [[1.0, 1.0]]})
        assert np.isfinite(run.tops[0]).all()
        assert np.isfinite(run.passes.blob_gradients["x0"]).all()


def test_constant_power_of_zero_is_what_caffe_computes() -> None:
    run = run_layer('top: "n0" type: "Power" power_param { power: -1 scale: 0 }', [[[1.0, 2.0]]])
    assert np.isposinf(run.tops[0]).all()


def test_wrong_options_are_refused() -> None:
    assert refusal('top: "n0" type: "Clip"', (1, 2)).endswith("clip_param needs both min and max")
    assert "base=0" in refusal('top: "n0" type: "Exp" exp_param { base: 0 }', (1, 2))
    assert "base=-2" in refusal('top: "n0" type: "Log" log_param { base: -2 }', (1, 2))
    assert "allowed: 2 or more axes" in refusal('top: "n0" type: "PReLU"', (3,))


def test_relu6_has_no_slope_at_its_kinks() -> None:
    run = run_layer('top: "n0" type: "ReLU6"', [[0.0, 3.0, 6.0]], top_gradients={"n0": [1.0, 1.0, 1.0]})
    np.testing.assert_array_equal(run.passes.blob_gradients["x0"], [0, 1, 0])


def test_relu6_refuses_a_slope() -> None:
    assert refusal_of_type("ReLU6", "relu_param { negative_slope: 0.5 }", (2, 3)) == (
        "relu_param.negative_slope=0.5: the forks differ in what it means here; allowed: 0"
    )
