"""Scale and Bias: the axes of the values, with one bottom and with two."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.layer_check import check_layer, define, refusal

pytestmark = pytest.mark.tf

SHAPE = (2, 3, 4, 2)
COVERED = [
    # axis, num_axes, covered shape
    (1, 1, (3,)),
    (0, 2, (2, 3)),
    (1, 3, (3, 4, 2)),
    (2, -1, (4, 2)),
    (-1, 1, (2,)),
    (0, -1, SHAPE),
    (1, 0, ()),
]


def repeated(values: np.ndarray, axis: int) -> np.ndarray:
    """Look every factor up by the covered part of the place."""
    first = axis % len(SHAPE)
    full = np.zeros(SHAPE)
    for index in np.ndindex(*SHAPE):
        full[index] = values[index[first : first + values.ndim]]
    return full


@pytest.mark.parametrize(("axis", "num_axes", "covered"), COVERED)
@pytest.mark.parametrize("channels_last", [False, True])
def test_learned_factors_and_bias(axis: int, num_axes: int, covered: tuple[int, ...], channels_last: bool) -> None:
    rng = np.random.default_rng(1)
    check_layer(
        f'top: "n0" type: "Scale" scale_param {{ axis: {axis} num_axes: {num_axes} bias_term: true }}',
        lambda x, factors, bias: [x * repeated(factors, axis) + repeated(bias, axis)],
        [rng.normal(size=SHAPE)],
        [rng.normal(size=covered), rng.normal(size=covered)],
        channels_last=channels_last,
    )


@pytest.mark.parametrize(("axis", "num_axes", "covered"), COVERED)
def test_learned_bias(axis: int, num_axes: int, covered: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    check_layer(
        f'top: "n0" type: "Bias" bias_param {{ axis: {axis} num_axes: {num_axes} }}',
        lambda x, bias: [x + repeated(bias, axis)],
        [rng.normal(size=SHAPE)],
        [rng.normal(size=covered)],
    )


@pytest.mark.parametrize(("axis", "covered"), [(0, (2, 3)), (1, (3,)), (0, SHAPE), (2, (4, 2)), (3, ())])
@pytest.mark.parametrize("channels_last", [False, True])
def test_second_bottom(axis: int, covered: tuple[int, ...], channels_last: bool) -> None:
    rng = np.random.default_rng(3)
    bottoms = [rng.normal(size=SHAPE), rng.normal(size=covered)]
    check_layer(
        f'top: "n0" type: "Scale" scale_param {{ axis: {axis} bias_term: true }}',
        lambda x, factors, bias: [x * repeated(factors, axis) + repeated(bias, axis)],
        bottoms,
        [rng.normal(size=covered)],
        channels_last=channels_last,
    )
    check_layer(
        f'top: "n0" type: "Bias" bias_param {{ axis: {axis} }}',
        lambda x, bias: [x + repeated(bias, axis)],
        bottoms,
        channels_last=channels_last,
    )


def test_fillers() -> None:
    factors, bias = define('top: "n0" type: "Scale" scale_param { bias_term: true }', (2, 3)).blobs
    assert (factors.filler.type, factors.filler.value) == ("constant", 1)
    assert (bias.filler.type, bias.filler.value) == ("constant", 0)
    (blob,) = define('top: "n0" type: "Scale" scale_param { filler { type: "msra" } }', (2, 3)).blobs
    assert blob.filler.type == "msra"


def test_shapes_that_do_not_fit_are_refused() -> None:
    assert refusal('top: "n0" type: "Scale" scale_param { num_axes: 4 }', SHAPE).endswith(
        "scale_param.num_axes=4 from axis 1 on does not fit a bottom of shape (2, 3, 4, 2); allowed: -1 to 3"
    )
    assert refusal('top: "n0" type: "Bias"', SHAPE, (4,)).endswith(
        'bottom "x1" has shape (4); expected the extents of bottom "x0" (2, 3, 4, 2) from axis 1 on'
    )
