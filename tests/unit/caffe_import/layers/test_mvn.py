"""MVN against a loop over planes. The gradient is Caffe's own: the recorded cases check the gradient."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.layer_check import FORWARD_BOUND, assert_close, check_layer, run_layer
from tests.reference.slow_normalization import slow_mvn

pytestmark = pytest.mark.tf


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("variance", [False, True])
@pytest.mark.parametrize("channels_last", [False, True])
def test_values(across: bool, variance: bool, channels_last: bool) -> None:
    options = f"across_channels: {str(across).lower()} normalize_variance: {str(variance).lower()} eps: 0.1"
    x = np.random.default_rng(1).normal(1, 2, (2, 3, 2, 4))
    run = run_layer(f'top: "n0" type: "MVN" mvn_param {{ {options} }}', [x], channels_last=channels_last)
    assert_close(
        run.tops[0], slow_mvn(x, across_channels=across, normalize_variance=variance, eps=0.1), FORWARD_BOUND, "top"
    )


@pytest.mark.parametrize("across", [False, True])
def test_gradients_without_eps(across: bool) -> None:
    check_layer(
        f'top: "n0" type: "MVN" mvn_param {{ across_channels: {str(across).lower()} eps: 1e-9 }}',
        lambda x: [slow_mvn(x, across_channels=across, normalize_variance=True, eps=1e-9)],
        [np.random.default_rng(2).normal(1, 2, (2, 2, 3, 2))],
    )
