from __future__ import annotations

import numpy as np
import pytest

from deepspark_ops.errors import WorkerFenced, WorkerReplaced
from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.memory import CenterShape
from deepspark_ops.exchange.center.worker_counters import BEGUN, ENDED, session_number


def test_snapshot_is_a_copy() -> None:
    center = Center.in_memory(np.float32([1.0, 2.0]), CenterShape(2, 1, 1))
    copy = center.snapshot()
    center.vector[0] = 9.0
    assert copy.tolist() == [1.0, 2.0]


def test_staleness_counts_exchanges_by_others_since_my_pull() -> None:
    center = Center.in_memory(np.zeros(4, np.float32), CenterShape(4, 3, 1))
    for worker in range(3):
        center.pulled(worker)
    for worker in (1, 1, 2):
        center.end(worker, center.begin(worker), 0)
    ticket = center.begin(0)
    assert ticket.staleness == 3
    center.end(0, ticket, 0)
    center.end(1, center.begin(1), 0)
    assert center.begin(0).staleness == 1


def test_overlaps_count_exchanges_that_were_open_with_mine() -> None:
    center = Center.in_memory(np.zeros(4, np.float32), CenterShape(4, 3, 1))
    mine = center.begin(0)
    first_ticket = center.begin(1)
    center.end(1, first_ticket, 0)
    center.begin(2)
    assert center.end(0, mine, 0) == 2
    second_ticket = center.begin(1)
    assert center.end(1, second_ticket, 0) == 1, "worker 2 is still in its exchange"
    center.abandon(2)
    assert center.end(1, center.begin(1), 0) == 0


OLD, NEW = session_number("old"), session_number("new")


def test_an_exchange_that_was_given_up_cannot_be_ended_by_a_process_that_was_only_stopped() -> None:
    center = Center.in_memory(np.zeros(4, np.float32), CenterShape(4, 2, 1))
    center.admit(0, "old")
    context = center.begin(0, session=OLD)
    center.abandon(0)
    center.end(1, center.begin(1), 0)
    with pytest.raises(WorkerFenced, match=r"^worker 0: silent for so long that it was given up in the middle"):
        center.end(0, context, 0)
    assert center.counters[0, [BEGUN, ENDED]].tolist() == [0, 0], "what it had not ended is not counted"


def test_a_process_whose_place_was_taken_can_neither_end_nor_begin() -> None:
    center = Center.in_memory(np.zeros(4, np.float32), CenterShape(4, 2, 1))
    center.admit(0, "old")
    context = center.begin(0, session=OLD)
    center.abandon(0)
    center.admit(0, "new")
    successor = center.begin(0, session=NEW)
    for action in (lambda: center.end(0, context, 0), lambda: center.begin(0, session=OLD)):
        with pytest.raises(WorkerReplaced, match=r"^worker 0: a newer process has taken its place; leaving$"):
            action()
    center.end(0, successor, 0)
    assert center.counters[0, [BEGUN, ENDED]].tolist() == [1, 1]


def test_a_worker_that_was_given_up_between_exchanges_may_go_on() -> None:
    center = Center.in_memory(np.zeros(4, np.float32), CenterShape(4, 2, 1))
    center.admit(0, "old")
    center.abandon(0)
    center.end(0, center.begin(0, session=OLD), 0)
    assert center.counters[0, ENDED] == 1
