"""HingeLoss against loops."""

from __future__ import annotations

import pytest

from tests.reference.layer_check import check_layer, spread_values
from tests.reference.slow_losses import slow_hinge_loss

pytestmark = pytest.mark.tf


@pytest.mark.parametrize("norm", [1, 2])
def test_hinge(norm: int) -> None:
    check_layer(
        f'top: "loss" type: "HingeLoss" hinge_loss_param {{ norm: L{norm} }}',
        lambda x, y: [slow_hinge_loss(x, y, norm=norm)],
        [spread_values(4, 3, gap=0.31), [0, 2, 1, 1]],
        no_gradient=(1,),
    )
