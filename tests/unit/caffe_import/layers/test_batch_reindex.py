"""BatchReindex against loops."""

from __future__ import annotations

import pytest

from tests.reference.layer_check import check_layer, spread_values

pytestmark = pytest.mark.tf


@pytest.mark.parametrize("channels_last", [False, True])
def test_batch_reindex_repeats_and_drops_samples(channels_last: bool) -> None:
    order = [3, 0, 0, 2, 3]
    check_layer(
        'top: "n0" type: "BatchReindex"',
        lambda x, _: [x[order]],
        [spread_values(4, 2, 2, 1), order],
        no_gradient=(1,),
        channels_last=channels_last,
    )
