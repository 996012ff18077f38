from __future__ import annotations

import numpy as np

from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.memory import CenterShape
from deepspark_ops.exchange.server.statistics_exchange import StatisticsExchange
from deepspark_ops.param_vector import StatisticBlobs

BLOBS = StatisticBlobs.from_json([[0, 1, 1, 2, 2]])
"""Mean, variance and factor of one layer with one channel."""


def exchange_over(center: Center) -> StatisticsExchange:
    return StatisticsExchange(center, BLOBS, n_workers=2)


def test_a_repeated_request_moves_the_center_once() -> None:
    center = Center.in_memory(np.float32([4.0, 1.0, 1.0]), CenterShape(3, 2, 1))
    exchange = exchange_over(center)
    first = exchange.exchange(0, "a", 1, np.float32([2.0, 1.0, 1.0]))
    assert first[0] == 3.0
    np.testing.assert_array_equal(exchange.exchange(0, "a", 1, np.float32([2.0, 1.0, 1.0])), first)
    assert center.vector[0] == 3.0
    assert exchange.exchange(0, "a", 2, np.float32([2.0, 1.0, 1.0]))[0] == 2.5


def test_a_process_that_takes_a_workers_place_gets_sums_of_its_own() -> None:
    """It begins with the number of the exchange that its predecessor left open."""
    center = Center.in_memory(np.float32([4.0, 1.0, 1.0]), CenterShape(3, 2, 1))
    exchange = exchange_over(center)
    assert exchange.exchange(0, "dead", 1, np.float32([2.0, 1.0, 1.0]))[0] == 3.0
    assert exchange.exchange(0, "restarted", 1, np.float32([5.0, 1.0, 1.0]))[0] == 4.0
