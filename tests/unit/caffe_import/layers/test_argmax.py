"""ArgMax against a sort that prefers the larger index among equals."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.layer_check import define, refusal, run_layer, spread_values

pytestmark = pytest.mark.tf


def slow_argmax(line: np.ndarray, top_k: int) -> tuple[list[int], list[float]]:
    order = sorted(range(len(line)), key=lambda index: (line[index], index), reverse=True)[:top_k]
    return order, [line[index] for index in order]


@pytest.mark.parametrize("top_k", [1, 3])
@pytest.mark.parametrize("out_max_val", [False, True])
def test_without_an_axis_all_but_the_first_are_searched(top_k: int, out_max_val: bool) -> None:
    x = spread_values(3, 2, 2, 3)
    x[0] = 0.5  # ties
    text = f'top: "n0" type: "ArgMax" argmax_param {{ top_k: {top_k} out_max_val: {str(out_max_val).lower()} }}'
    run = run_layer(text, [x])
    assert run.tops[0].shape == (3, 2 if out_max_val else 1, top_k, 1)
    for n in range(3):
        indices, values = slow_argmax(x[n].reshape(-1), top_k)
        np.testing.assert_array_equal(run.tops[0][n, 0, :, 0], indices)
        if out_max_val:
            np.testing.assert_allclose(run.tops[0][n, 1, :, 0], values, rtol=1e-6)


@pytest.mark.parametrize(("axis", "top_k"), [(1, 1), (-1, 2), (0, 2)])
@pytest.mark.parametrize("out_max_val", [False, True])
@pytest.mark.parametrize("channels_last", [False, True])
def test_along_an_axis(axis: int, top_k: int, out_max_val: bool, channels_last: bool) -> None:
    x = spread_values(3, 4, 2, 3)
    options = f"axis: {axis} top_k: {top_k} out_max_val: {str(out_max_val).lower()}"
    text = f'top: "n0" type: "ArgMax" argmax_param {{ {options} }}'
    run = run_layer(text, [x], channels_last=channels_last)
    expected = np.apply_along_axis(lambda line: slow_argmax(line, top_k)[int(out_max_val)], axis, x)
    np.testing.assert_allclose(run.tops[0], expected, rtol=1e-6)


def test_definition() -> None:
    assert define('top: "n0" type: "ArgMax"', (4, 10)).top_shapes == ((4, 1, 1),)
    assert refusal('top: "n0" type: "ArgMax" argmax_param { top_k: 11 }', (4, 10)).endswith(
        "top_k=11: allowed are 1 to 10, the number of values compared"
    )
    assert refusal('top: "n0" type: "ArgMax"', ()).endswith("bottom has no axes; expected (N, ...)")
