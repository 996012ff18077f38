"""Rate scale and exchange period against the equations of their docstrings, worked out by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest

from deepspark_ops.exchange.comm_period import (
    AgreedPeriod,
    CommPeriod,
    LossBudget,
    ScheduledPeriod,
    smallest_comm_period,
)


def test_smallest_period_keeps_the_share_and_one_less_breaks_it() -> None:
    step_s, exchange_s = 0.010, 0.001
    tau = smallest_comm_period(step_s, exchange_s, 0.02)
    assert exchange_s / (tau * step_s + exchange_s) <= 0.02
    assert exchange_s / ((tau - 1) * step_s + exchange_s) > 0.02


def test_auto_starts_at_one_ignores_the_first_call_and_then_decides() -> None:
    period = CommPeriod("auto", share=0.02)
    assert period.value == 1
    assert period.observe(n_steps=1, compute_s=60.0, exchange_s=0.001) is None  # the graph's first call
    reasons = [period.observe(n_steps=1, compute_s=0.010, exchange_s=0.001) for _ in range(4)]
    assert reasons[:3] == [None] * 3
    assert period.value == 5
    assert reasons[3] == (
        "comm_period 5: an exchange takes 1.00 ms, a minibatch 10.00 ms; exchanging costs 2.0 % of the time"
    )


def test_auto_stays_at_the_strategys_least_however_cheap_exchanging_is() -> None:
    period = CommPeriod("auto", least=10, share=0.02)
    reasons = [period.observe(n_steps=period.value, compute_s=10.0, exchange_s=1e-6) for _ in range(200)]
    assert period.value == 10
    assert reasons == [None] * 200
    dear = [period.observe(n_steps=10, compute_s=0.1, exchange_s=0.01) for _ in range(200)]
    assert period.value == 49
    assert any(dear)


def test_auto_changes_its_mind_only_for_half_as_much_again() -> None:
    period = CommPeriod("auto", share=0.02)
    for _ in range(5):
        period.observe(n_steps=1, compute_s=0.010, exchange_s=0.004)
    assert period.value == 20
    for _ in range(200):
        assert period.observe(n_steps=20, compute_s=0.200, exchange_s=0.0058) is None
    reasons = [period.observe(n_steps=20, compute_s=0.200, exchange_s=0.008) for _ in range(128)]
    assert period.value == 40
    assert sum(reason is not None for reason in reasons) == 1


def test_agreed_period_is_what_all_take_and_not_what_this_worker_wants() -> None:
    period = AgreedPeriod(3, 0.02)
    assert (period.value, period.proposal) == (3, 3)
    for _ in range(5):
        assert period.observe(n_steps=3, compute_s=0.030, exchange_s=0.002) is None
    assert (period.value, period.proposal) == (3, 10)
    assert period.agree(0) is None
    assert period.agree(3) is None
    assert period.agree(16) == "comm_period 16: another worker needs it"
    assert period.value == 16
    reason = period.agree(10)
    assert (
        reason == "comm_period 10: an exchange takes 2.00 ms, a minibatch 10.00 ms; exchanging costs 2.0 % of the time"
    )
    assert CommPeriod("auto", share=0.02).proposal == 0
    assert CommPeriod("auto", share=0.02).agree(7) is None


def test_a_given_period_never_moves() -> None:
    period = CommPeriod(7)
    for _ in range(100):
        assert period.observe(n_steps=7, compute_s=0.001, exchange_s=1.0) is None
    assert period.value == 7


def slow_budget(losses: list[float], first: int) -> list[int]:
    """Return after how many steps each exchange comes, step by step: Kim et al. 2016's rule, periods of 16 at most."""
    ends, spent, steps, budget = [], 0.0, 0, None
    for position, loss in enumerate(losses, start=1):
        spent, steps = spent + loss, steps + 1
        is_over = steps == first if budget is None else spent > budget or steps == 16 * first
        if is_over:
            budget = spent if budget is None else budget
            ends.append(position)
            spent, steps = 0.0, 0
    return ends


@pytest.mark.parametrize("first", [1, 4])
def test_budget_of_a_falling_loss_ends_periods_at_the_very_step(first: int) -> None:
    losses = [2.0 * 0.97**k for k in range(200)]
    period, ends, n_steps_done = LossBudget(first), [], 0
    while n_steps_done + period.value <= len(losses):
        n_steps = min(period.value, 3)  # grants are cut at boundaries
        period.spend(losses[n_steps_done : n_steps_done + n_steps])
        n_steps_done += n_steps
        if period.is_due:
            ends.append(n_steps_done)
            period.exchanged()
    expected = slow_budget(losses, first)
    assert ends == expected[: len(ends)]
    assert len(ends) > 5
    lengths = [stop - start for start, stop in pairwise(ends)]
    assert lengths == sorted(lengths), "the loss falls, so periods grow"


def test_budget_tells_a_length_that_has_changed_by_half() -> None:
    period = LossBudget(2)
    period.spend([4.0, 4.0])
    assert period.exchanged() is None
    assert period.value == 3  # two steps at 4 make 8, which does not exceed 8
    period.spend([2.0, 2.0, 2.0])
    assert (period.is_due, period.value) == (False, 2)
    period.spend([2.0, 2.0])
    assert period.exchanged() == "comm_period 5: so many minibatches for the loss of the first period, 8"


def test_loss_of_nothing_does_not_keep_workers_apart_for_good() -> None:
    period = LossBudget(2)
    period.spend([1.0, 1.0])
    period.exchanged()
    period.spend([0.0])
    assert period.value == 31
    period.spend([0.0] * 31)
    assert period.is_due


def test_scheduled_period_follows_the_clock_and_says_so() -> None:
    period = ScheduledPeriod([(0, 1.0), (100, 10.0)], 0)
    assert (period.value, period.reach(99)) == (1, None)
    assert period.reach(103) == "comm_period 10, was 1: as scheduled"
    assert (period.value, period.reach(104)) == (10, None)
    assert [ScheduledPeriod([(0, 1.0), (100, 10.0)], clock).value for clock in (99, 100, 150)] == [1, 10, 10]


def test_a_first_period_that_is_cut_short_sets_no_budget() -> None:
    period = LossBudget(4)
    period.spend([5.0, 5.0])
    assert period.exchanged() is None
    assert period.value == 4
    period.spend([3.0] * 4)
    assert period.is_due
    period.exchanged()
    period.spend([3.0])
    assert (period.is_due, period.value) == (False, 4)  # 12 - 3 of the budget are left: four more steps exceed it
