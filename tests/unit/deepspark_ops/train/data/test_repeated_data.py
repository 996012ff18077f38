from __future__ import annotations

import numpy as np

from deepspark_ops.exchange.comm_period import FixedSet
from deepspark_ops.train.data.batch_source import Feeds
from deepspark_ops.train.data.repeated_data import RepeatedBatches


class Counting:
    """Steps of two passes with their number as content; at most two steps a call."""

    def __init__(self) -> None:
        self.n_given = 0
        self.ring = np.zeros(0, np.float32)

    def take(self, max_steps: int) -> tuple[Feeds, int]:
        n_steps = min(2, max_steps)
        self.ring = np.arange(2 * self.n_given, 2 * (self.n_given + n_steps), dtype=np.float32)
        self.n_given += n_steps
        return {"data": self.ring}, n_steps


def test_the_first_steps_come_again_and_again() -> None:
    source = Counting()
    batches = RepeatedBatches(source, 5, iter_size=2)
    values: list[float] = []
    n_taken = 0
    for max_steps in (3, 9, 1, 9, 1, 9, 9, 9, 9, 9):
        feeds, n_steps = batches.take(max_steps)
        assert 1 <= n_steps <= max_steps
        assert len(feeds["data"]) == 2 * n_steps
        values += feeds["data"].tolist()
        n_taken += n_steps
    assert source.n_given == 5
    assert values == [float(k % 10) for k in range(2 * n_taken)]


def test_what_was_taken_is_the_workers_own() -> None:
    source = Counting()
    batches = RepeatedBatches(source, 2, iter_size=2)
    first, _ = batches.take(2)
    old_values = first["data"].tolist()
    source.ring[:] = -1  # by a batch for another worker
    assert first["data"].tolist() == batches.take(2)[0]["data"].tolist() == old_values


def test_a_set_is_measured_over_in_as_many_grants_as_it_takes() -> None:
    period = FixedSet(5)
    assert (period.value, period.is_due) == (5, False)
    period.spend([1.0, 2.0])
    assert (period.value, period.is_due) == (3, False)
    period.spend([1.0, 2.0, 3.0])
    assert period.is_due
    period.exchanged()
    assert (period.value, period.is_due) == (5, False)
