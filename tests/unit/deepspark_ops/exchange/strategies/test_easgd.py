from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import ExchangeContext, configure, find_strategy
from tests.reference.slow_easgd import slow_elastic_exchange

floats = st.floats(-1e3, 1e3, width=32)
pairs = st.lists(st.tuples(floats, floats), min_size=1, max_size=40)


@given(pairs, st.floats(0.01, 1.0))
def test_one_chunk_equals_the_slow_reference_bit_for_bit(values: list[tuple[float, float]], alpha: float) -> None:
    local, center = (np.float32(v) for v in zip(*values, strict=True))
    new_local, push = np.empty_like(local), np.empty_like(local)
    strategy, context = find_strategy("easgd"), ExchangeContext(2, alpha)
    expected = slow_elastic_exchange(local.tolist(), center.tolist(), alpha)
    strategy.worker_chunk(local, center, new_local, push, local, context)
    assert strategy.server_chunk(center, (), push, context, 0) == 0
    np.testing.assert_array_equal(new_local, np.float32(expected[0]))
    np.testing.assert_array_equal(center, np.float32(expected[1]))


def test_exchange_keeps_the_sum() -> None:
    rng = np.random.default_rng(1)
    local, center = rng.standard_normal((2, 1000)).astype(np.float32)
    before = local.astype(np.float64).sum() + center.astype(np.float64).sum()
    new_local, push = np.empty_like(local), np.empty_like(local)
    strategy, context = find_strategy("easgd"), ExchangeContext(2, 0.45)
    strategy.worker_chunk(local, center, new_local, push, local, context)
    assert strategy.server_chunk(center, (), push, context, 0) == 0
    after = new_local.astype(np.float64).sum() + center.astype(np.float64).sum()
    assert abs(after - before) < 1e-4  # float32 rounding of 2,000 elements of size 1


def test_progress_is_one_step_shared_by_workers_and_center() -> None:
    assert find_strategy("easgd").progress_per_step(3) == 0.25


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_of_momentum_outside_its_range_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match=r"momentum_from_center=.*: must be in \[0, 1\]"):
        configure("easgd", {"momentum_from_center": share})
