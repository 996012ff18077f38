from __future__ import annotations

import json

import pytest

from deepspark_ops.exchange.state.clock import GrantClock
from deepspark_ops.exchange.state.grants import Grant, Schedule
from deepspark_ops.exchange.state.paces import WorkerPaces


def paces_of(seconds: dict[int, float], want: int = 10) -> WorkerPaces:
    """Return the paces after five grants of workers, given the seconds of a minibatch of each."""
    paces = WorkerPaces()
    for worker, each in seconds.items():
        paces.share(worker, want)
        for _ in range(5):
            paces.measure(worker, each * want, want)
    return paces


def test_steps_are_proportional_to_the_measured_speed() -> None:
    paces = paces_of({0: 0.1, 1: 0.2, 2: 0.3, 3: 5.0, 4: 0.104})
    assert [paces.share(worker, 10) for worker in range(5)] == [10, 5, 3, 1, 10]


def test_one_slow_grant_changes_nothing() -> None:
    paces = paces_of({0: 0.1, 1: 0.1})
    paces.measure(1, 90.0, 10)
    assert paces.share(1, 10) == 10


def test_a_worker_whose_pace_is_not_known_gets_what_it_asks_for() -> None:
    paces = paces_of({0: 0.1, 1: 0.5})
    paces.forget(1)
    assert paces.share(1, 10) == 10
    for _ in range(2):
        paces.measure(1, 5.0, 10)
        assert paces.share(1, 10) == 10
    paces.measure(1, 5.0, 10)
    assert paces.share(1, 10) == 2


def test_grants_without_minibatches_say_nothing() -> None:
    paces = paces_of({0: 0.1, 1: 0.1})
    for _ in range(9):
        paces.measure(1, 60.0, 0)
    assert paces.share(1, 10) == 10


def test_a_slow_worker_that_asks_for_less_by_itself_is_not_cut_twice() -> None:
    paces = paces_of({0: 0.1, 1: 0.2}, want=20)
    assert paces.share(1, 12) == 10
    assert paces.share(1, 6) == 6


@pytest.mark.parametrize(("evens_pace", "last_counts"), [(True, [9, 3]), (False, [9, 9])])
def test_clock_grants_workers_of_unequal_speed_equal_times(evens_pace: bool, last_counts: list[int]) -> None:
    """Worker 1 takes three times as long; the server is started again in between."""
    clock = GrantClock(Schedule(400, test_interval=100), 10.0, evens_pace=evens_pace)
    step_s = (1.0, 3.0)
    due, counts = [0.0, 0.0], [0, 0]
    held: dict[int, Grant] = {}
    for worker in (0, 1):
        clock.join(worker, 0.0)
    for turn in range(30):
        worker = due.index(min(due))
        now = due[worker]
        if worker in held:
            assert clock.acknowledge(worker, held.pop(worker).id, now)
        grant = clock.request(worker, 9, now)
        assert isinstance(grant, Grant)
        held[worker] = grant
        counts[worker] = grant.count
        # The time of a test net does not count for the pace.
        due[worker] = now + grant.count * step_s[worker] + (200.0 if grant.tests else 0.0)
        if turn == 20:
            copy = GrantClock(clock.schedule, 10.0, evens_pace=evens_pace)
            copy.restore(json.loads(json.dumps(clock.to_state())))
            clock = copy
    assert counts == last_counts
