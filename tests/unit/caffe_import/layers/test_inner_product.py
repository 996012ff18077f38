"""InnerProduct against a loop over samples and outputs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.layer_check import check_layer, define, in_both_orders, refusal

pytestmark = pytest.mark.tf


def inner_product(options: str) -> str:
    return f'type: "InnerProduct" top: "n0" inner_product_param {{ {options} }}'


@pytest.mark.parametrize(
    ("shape", "axis", "channels_last"),
    in_both_orders(((3, 5), 1), ((2, 3, 2, 2), 1), ((2, 3, 4), 2), ((2, 3, 4), -1), ((2, 3), 0)),
)
@pytest.mark.parametrize("transpose", [False, True])
def test_values_and_gradients(shape: tuple[int, ...], axis: int, transpose: bool, channels_last: bool) -> None:
    rng = np.random.default_rng(6)
    outer_shape, n_inputs = shape[: axis % len(shape)], int(np.prod(shape[axis % len(shape) :]))

    def reference(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
        rows = x.reshape(-1, n_inputs)
        top = np.zeros((len(rows), 4))
        for n, o in np.ndindex(*top.shape):
            top[n, o] = b[o] + sum(rows[n, k] * (w[k, o] if transpose else w[o, k]) for k in range(n_inputs))
        return [top.reshape(*outer_shape, 4)]

    check_layer(
        inner_product(f"num_output: 4 axis: {axis} transpose: {str(transpose).lower()}"),
        reference,
        [rng.normal(size=shape)],
        [rng.normal(size=(n_inputs, 4) if transpose else (4, n_inputs)), rng.normal(size=4)],
        channels_last=channels_last,
    )


def test_definition() -> None:
    definition = define(
        inner_product("num_output: 10 bias_term: false weight_filler { type: 'xavier' }"), (64, 50, 4, 4)
    )
    assert definition.top_shapes == ((64, 10),)
    assert [blob.shape for blob in definition.blobs] == [(10, 800)]
    assert definition.blobs[0].filler.type == "xavier"
    assert definition.flops == 2 * 64 * 800 * 10
    assert refusal(inner_product(""), (2, 3)).endswith("inner_product_param.num_output=0: must be at least 1")
