from __future__ import annotations

from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.rounds.rounds import Rounds


def close(rounds: Rounds) -> None:
    rounds.close()
    rounds.open()


def test_round_is_over_when_every_live_worker_has_pushed() -> None:
    rounds = Rounds()
    rounds.pushed(0, 1)
    assert not rounds.is_complete((0, 1))
    rounds.pushed(1, 1)
    assert rounds.is_complete((0, 1))
    close(rounds)
    assert rounds.is_released(0, 1)
    assert not rounds.is_released(0, 2)
    assert not rounds.is_complete((0, 1)), "no worker has pushed in the next round"


def test_worker_without_steps_is_not_waited_for_until_it_has_some() -> None:
    rounds = Rounds()
    rounds.granted(1, has_steps=False)
    rounds.pushed(0, 1)
    assert rounds.is_complete((0, 1))
    rounds.granted(1, has_steps=True)
    assert not rounds.is_complete((0, 1))


def test_lost_worker_is_not_waited_for_and_what_it_pushed_counts() -> None:
    rounds = Rounds()
    rounds.pushed(0, 1)
    rounds.pushed(1, 1)
    assert not rounds.is_complete((0, 2))
    assert rounds.is_complete((0,))


def test_only_one_thread_closes_a_round() -> None:
    rounds = Rounds()
    rounds.pushed(0, 1)
    rounds.close()
    assert not rounds.is_complete((0,))


def test_repeated_message_of_an_old_round_does_not_open_a_new_one() -> None:
    rounds = Rounds()
    rounds.pushed(0, 1)
    close(rounds)
    rounds.pushed(0, 1)
    assert not rounds.is_complete((0,))


def test_new_process_begins_without_its_predecessors_pushes() -> None:
    rounds = Rounds()
    rounds.granted(0, has_steps=False)
    rounds.pushed(0, 3)
    rounds.joined(0)
    assert not rounds.is_complete((0,))
    assert not rounds.is_released(0, 3)


def test_a_process_that_joins_later_is_waited_for_from_its_first_grant_on() -> None:
    rounds = Rounds()
    rounds.joined(0)
    rounds.joined(1)
    rounds.pushed(0, 1)
    assert not rounds.is_complete((0, 1)), "the first round waits for all that have joined"
    rounds.pushed(1, 1)
    close(rounds)
    rounds.joined(2)
    rounds.joined(1)
    rounds.pushed(0, 2)
    assert rounds.is_complete((0, 1, 2)), "both compile"
    rounds.granted(2, has_steps=True)
    assert not rounds.is_complete((0, 1, 2))
    rounds.pushed(2, 1)
    assert rounds.is_complete((0, 1, 2))


def test_after_a_servers_restart_a_process_that_joins_is_not_waited_for() -> None:
    rounds = Rounds(has_begun=True)
    rounds.joined(1)
    rounds.pushed(0, 2)
    assert rounds.is_complete((0, 1))
    assert not rounds.is_complete((0, 2)), "it was there before the restart"


def test_all_take_the_longest_period_that_one_of_the_round_would_choose() -> None:
    rounds = Rounds()
    for worker, wanted in enumerate((3, 8, 5)):
        rounds.pushed(worker, 1, RoundNote(comm_period=wanted))
    close(rounds)
    assert rounds.comm_period == 8
    rounds.pushed(0, 2, RoundNote(comm_period=3))
    rounds.pushed(1, 2)
    close(rounds)
    assert rounds.comm_period == 3, "of the last round only"
    rounds.pushed(0, 3)
    close(rounds)
    assert rounds.comm_period == 0
