"""Embed against loops."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.layer_check import check_layer

pytestmark = pytest.mark.tf


@pytest.mark.parametrize("bias", [False, True])
def test_embed_looks_rows_up(bias: bool) -> None:
    rng = np.random.default_rng(1)
    words = np.array([[0, 2, 2], [4, 0, 1]])

    def reference(_: np.ndarray, table: np.ndarray, *offset: np.ndarray) -> list[np.ndarray]:
        top = np.zeros((2, 3, 3))
        for index in np.ndindex(2, 3):
            top[index] = table[words[index]] + (offset[0] if offset else 0)
        return [top]

    check_layer(
        f'top: "n0" type: "Embed" embed_param {{ num_output: 3 input_dim: 5 bias_term: {str(bias).lower()} }}',
        reference,
        [words],
        [rng.normal(size=(5, 3)), rng.normal(size=3)][: 1 + bias],
        no_gradient=(0,),
    )
