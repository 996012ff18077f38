from __future__ import annotations

from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.rounds.rounds import LEAST_START_WAIT_S, Rounds

NOW = 100.0


def close(rounds: Rounds) -> None:
    rounds.close()
    rounds.open()


def test_round_is_over_when_every_live_worker_has_pushed() -> None:
    rounds = Rounds()
    rounds.pushed(0, 1, NOW)
    assert not rounds.is_complete((0, 1), NOW)
    rounds.pushed(1, 1, NOW)
    assert rounds.is_complete((0, 1), NOW)
    close(rounds)
    assert rounds.is_released(0, 1)
    assert not rounds.is_released(0, 2)
    assert not rounds.is_complete((0, 1), NOW), "no worker has pushed in the next round"


def test_worker_without_steps_is_not_waited_for_until_it_has_some() -> None:
    rounds = Rounds()
    rounds.granted(1, NOW, has_steps=False)
    rounds.pushed(0, 1, NOW)
    assert rounds.is_complete((0, 1), NOW)
    rounds.granted(1, NOW, has_steps=True)
    assert not rounds.is_complete((0, 1), NOW)


def test_lost_worker_is_not_waited_for_and_what_it_pushed_counts() -> None:
    rounds = Rounds()
    rounds.pushed(0, 1, NOW)
    rounds.pushed(1, 1, NOW)
    assert not rounds.is_complete((0, 2), NOW)
    assert rounds.is_complete((0,), NOW)


def test_only_one_thread_closes_a_round() -> None:
    rounds = Rounds()
    rounds.pushed(0, 1, NOW)
    rounds.close()
    assert not rounds.is_complete((0,), NOW)


def test_repeated_message_of_an_old_round_does_not_open_a_new_one() -> None:
    rounds = Rounds()
    rounds.pushed(0, 1, NOW)
    close(rounds)
    rounds.pushed(0, 1, NOW)
    assert not rounds.is_complete((0,), NOW)


def test_new_process_begins_without_its_predecessors_pushes() -> None:
    rounds = Rounds()
    rounds.granted(0, NOW, has_steps=False)
    rounds.pushed(0, 3, NOW)
    rounds.joined(0, NOW)
    assert not rounds.is_complete((0,), NOW)
    assert not rounds.is_released(0, 3)


def test_a_process_that_joins_later_is_waited_for_from_its_first_grant_on() -> None:
    rounds = Rounds()
    rounds.joined(0, NOW)
    rounds.joined(1, NOW)
    rounds.pushed(0, 1, NOW)
    assert not rounds.is_complete((0, 1), NOW), "the first round waits for all that have joined"
    rounds.pushed(1, 1, NOW)
    close(rounds)
    rounds.joined(2, NOW)
    rounds.joined(1, NOW)
    rounds.pushed(0, 2, NOW)
    assert rounds.is_complete((0, 1, 2), NOW), "both compile"
    rounds.granted(2, NOW, has_steps=True)
    assert not rounds.is_complete((0, 1, 2), NOW)
    rounds.pushed(2, 1, NOW)
    assert rounds.is_complete((0, 1, 2), NOW)


def test_the_first_round_waits_for_a_start_twice_as_long_as_the_slowest_other_start() -> None:
    rounds = Rounds()
    for worker in (0, 1, 2):
        rounds.joined(worker, NOW)
    rounds.granted(0, NOW + 7.0, has_steps=True)
    rounds.granted(1, NOW + 20.0, has_steps=True)
    rounds.pushed(0, 1, NOW + 21.0)
    assert not rounds.is_complete((0, 1, 2), NOW + 40.5), "worker 1 has steps"
    rounds.pushed(1, 1, NOW + 22.0)
    assert not rounds.is_complete((0, 1, 2), NOW + 39.5), "worker 2 may be half as fast"
    assert rounds.is_complete((0, 1, 2), NOW + 40.5)
    close(rounds)
    rounds.pushed(0, 2, NOW + 41.0)
    rounds.pushed(1, 2, NOW + 41.0)
    assert rounds.is_complete((0, 1, 2), NOW + 41.0), "worker 2 still compiles"
    rounds.granted(2, NOW + 42.0, has_steps=True)
    assert not rounds.is_complete((0, 1, 2), NOW + 500.0)


def test_the_first_round_waits_some_seconds_for_others_that_start_beside_a_fast_one() -> None:
    rounds = Rounds()
    rounds.joined(0, NOW)
    rounds.joined(1, NOW + 1.0)
    rounds.granted(0, NOW + 0.2, has_steps=True)
    rounds.pushed(0, 1, NOW + 0.3)
    assert not rounds.is_complete((0, 1), NOW + LEAST_START_WAIT_S)
    assert rounds.is_complete((0, 1), NOW + 1.1 + LEAST_START_WAIT_S), "since the join of worker 1"


def test_after_a_servers_restart_a_process_that_joins_is_not_waited_for() -> None:
    rounds = Rounds(has_begun=True)
    rounds.joined(1, NOW)
    rounds.pushed(0, 2, NOW)
    assert rounds.is_complete((0, 1), NOW)
    assert not rounds.is_complete((0, 2), NOW), "it was there before the restart"


def test_all_take_the_longest_period_that_one_of_the_round_would_choose() -> None:
    rounds = Rounds()
    for worker, comm_period in enumerate((3, 8, 5)):
        rounds.pushed(worker, 1, NOW, RoundNote(comm_period=comm_period))
    close(rounds)
    assert rounds.comm_period == 8
    rounds.pushed(0, 2, NOW, RoundNote(comm_period=3))
    rounds.pushed(1, 2, NOW)
    close(rounds)
    assert rounds.comm_period == 3, "of the last round only"
    rounds.pushed(0, 3, NOW)
    close(rounds)
    assert rounds.comm_period == 0
