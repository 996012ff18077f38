from __future__ import annotations

from deepspark_ops.exchange.center.chunks import Chunks
from deepspark_ops.exchange.strategies.base import find_strategy
from deepspark_ops.param_vector import StatisticBlobs


def test_workers_begin_at_chunks_of_their_own() -> None:
    chunks = Chunks(10, 1, find_strategy("easgd"), StatisticBlobs())
    orders = [list(chunks.order(worker, 3)) for worker in range(3)]
    assert [order[0] for order in orders] == [0, 3, 6]
    assert all(sorted(order) == list(range(10)) for order in orders)
