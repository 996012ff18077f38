from __future__ import annotations

import numpy as np

from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.memory import CenterShape
from deepspark_ops.exchange.server.statistics_exchange import StatisticsExchange
from deepspark_ops.param_vector import StatisticBlobs

BLOBS = StatisticBlobs.from_json([[0, 1, 1, 2, 2, 0.5]])
"""Mean, variance and factor of one layer with one channel, which forgets half with each minibatch."""


def exchange_over(center: Center) -> StatisticsExchange:
    return StatisticsExchange(center, BLOBS)


def test_a_repeated_request_moves_the_center_once() -> None:
    center = Center.in_memory(np.float32([4.0, 1.0, 1.0]), CenterShape(3, 2, 1))
    exchange = exchange_over(center)
    for sequence, expected in ((1, [4.0, 1.5, 1.5]), (1, [4.0, 1.5, 1.5]), (2, [4.0, 1.75, 1.75])):
        exchange.add(0, "a", sequence, np.float32([2.0, 1.0, 1.0]))
        assert center.vector.tolist() == expected


def test_a_new_process_of_a_worker_gets_new_sums() -> None:
    """The new process begins with the number of the exchange left open by the previous process."""
    center = Center.in_memory(np.float32([4.0, 1.0, 1.0]), CenterShape(3, 2, 1))
    exchange = exchange_over(center)
    exchange.add(0, "dead", 1, np.float32([2.0, 1.0, 1.0]))
    assert center.vector[0] == 4.0
    exchange.add(0, "restarted", 1, np.float32([5.0, 1.0, 1.0]))
    assert center.vector[0] == 7.0
