"""SPP against poolings joined by hand."""

from __future__ import annotations

import pytest

from tests.reference.layer_check import check_layer, refusal, spread_values
from tests.reference.slow_windows import slow_spp

pytestmark = pytest.mark.tf


@pytest.mark.parametrize(("height", "size"), [(1, (5, 6)), (2, (5, 7)), (3, (7, 9))])
@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize("channels_last", [False, True])
def test_values_and_gradients(height: int, size: tuple[int, int], method: str, channels_last: bool) -> None:
    check_layer(
        f'type: "SPP" top: "n0" spp_param {{ pyramid_height: {height} pool: {method} }}',
        lambda x: [slow_spp(x, height=height, method=method)],
        [spread_values(2, 2, *size)],
        channels_last=channels_last,
    )


def test_levels_that_need_too_much_padding_are_refused() -> None:
    text = 'type: "SPP" top: "n0" spp_param { pyramid_height: 3 }'
    assert refusal(text, (1, 2, 5, 5)).endswith(
        "4 x 4 MAX windows of 2x2 pixels on a bottom of 5x5 need pad (2, 2), which Pooling refuses; "
        "use a smaller pyramid_height"
    )
    assert "pyramid_height=0: must be at least 1" in refusal('type: "SPP" top: "n0"', (1, 2, 5, 5))
