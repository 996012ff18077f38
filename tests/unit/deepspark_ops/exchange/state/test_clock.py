from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.state.clock import GrantClock
from deepspark_ops.exchange.state.grants import Finished, Grant, Schedule, Wait

TIMEOUT_S = 10.0


def granted(answer: object) -> Grant:
    assert isinstance(answer, Grant), answer
    return answer


def run_alone(schedule: Schedule, want: int = 4) -> list[Grant]:
    """A worker that follows its grants; returns the grants."""
    clock = GrantClock(schedule, TIMEOUT_S)
    clock.join(0, 0.0)
    grants = []
    while not isinstance(answer := clock.request(0, want, 0.0), Finished):
        grant = granted(answer)
        grants.append(grant)
        clock.state_received(0, grant.state_for)
        assert clock.acknowledge(0, grant.id, 0.0)
        settle(clock)
    return grants


def settle(clock: GrantClock) -> None:
    for iteration in clock.due:
        clock.copied(iteration)
    for iteration in clock.complete:
        clock.closed(iteration)


def test_grants_are_cut_at_test_and_snapshot_boundaries() -> None:
    grants = run_alone(Schedule(max_iter=12, test_interval=5, snapshot=8, snapshot_after_train=False))
    assert [(g.start, g.count) for g in grants] == [(0, 4), (4, 1), (5, 3), (8, 2), (10, 2)]
    assert [g.start for g in grants if g.tests] == [0, 5, 10]
    assert [(g.start, g.state_for) for g in grants if g.state_for] == [(8, 8)]


def test_last_test_and_last_snapshot_come_in_grants_without_steps() -> None:
    grants = run_alone(Schedule(max_iter=10, test_interval=5, snapshot=4))
    last = grants[-1]
    assert (last.start, last.count, last.tests, last.state_for) == (10, 0, True, 10)
    assert [g.state_for for g in grants if g.state_for] == [4, 8, 10]


@pytest.mark.parametrize(
    ("schedule", "tests"),
    [
        (Schedule(6, test_interval=3, test_initialization=False), [3, 6]),
        (Schedule(7, test_interval=3, test_initialization=True), [0, 3, 6]),
        (Schedule(6, test_interval=0), []),
        (Schedule(6, test_interval=3, first=3), [3, 6]),
        (Schedule(6, test_interval=4, first=5), []),
    ],
)
def test_test_boundaries_are_caffes(schedule: Schedule, tests: list[int]) -> None:
    assert [g.start for g in run_alone(schedule) if g.tests] == tests


@pytest.mark.parametrize(
    ("schedule", "snapshots"),
    [
        (Schedule(10, snapshot=5), [5, 10]),
        (Schedule(10, snapshot=4), [4, 8, 10]),
        (Schedule(10, snapshot=4, snapshot_after_train=False), [4, 8]),
        (Schedule(10), [10]),
        (Schedule(10, snapshot=4, first=8), [10]),
        (Schedule(10, snapshot=5, first=10), []),
    ],
)
def test_snapshot_boundaries_are_caffes(schedule: Schedule, snapshots: list[int]) -> None:
    assert [g.state_for for g in run_alone(schedule) if g.state_for] == snapshots


def test_resume_starts_at_the_clock_of_the_snapshot() -> None:
    grants = run_alone(Schedule(10, first=6))
    assert [(g.start, g.count) for g in grants if g.count] == [(6, 4)]


def test_repeated_request_gets_the_same_grant() -> None:
    clock = GrantClock(Schedule(10), TIMEOUT_S)
    clock.join(0, 0.0)
    assert clock.request(0, 4, 0.0) == clock.request(0, 4, 1.0)


def test_silent_workers_grant_is_given_to_another() -> None:
    clock = GrantClock(Schedule(8, snapshot_after_train=False), TIMEOUT_S)
    clock.join(0, 0.0)
    clock.join(1, 0.0)
    lost = granted(clock.request(0, 4, 0.0))
    granted(clock.request(1, 4, 0.0))
    clock.note_call(1, 11.0)
    assert clock.silent(11.0) == (0,)
    clock.lose(0)
    assert clock.acknowledge(1, 2, 11.0)
    reissued = granted(clock.request(1, 4, 11.0))
    assert (reissued.start, reissued.count) == (lost.start, lost.count)
    assert not clock.acknowledge(0, lost.id, 12.0), "its steps belong to worker 1 now"
    assert clock.n_reissued == 1


def test_late_answer_counts_while_no_other_worker_has_the_steps() -> None:
    clock = GrantClock(Schedule(4, snapshot_after_train=False), TIMEOUT_S)
    clock.join(0, 0.0)
    grant = granted(clock.request(0, 4, 0.0))
    clock.lose(0)
    assert clock.acknowledge(0, grant.id, 99.0)
    assert isinstance(clock.request(0, 4, 99.0), Finished)


def test_new_process_of_a_worker_does_not_answer_for_the_old_one() -> None:
    clock = GrantClock(Schedule(8), TIMEOUT_S)
    clock.join(0, 0.0)
    old = granted(clock.request(0, 4, 0.0))
    clock.join(0, 1.0)
    assert not clock.acknowledge(0, old.id, 1.0)
    assert granted(clock.request(0, 2, 1.0)).start == 0
    assert granted(clock.request(1, 9, 1.0)).start == 2


def test_slow_nets_get_more_patience() -> None:
    clock = GrantClock(Schedule(100), TIMEOUT_S)
    clock.join(0, 0.0)
    clock.acknowledge(0, granted(clock.request(0, 4, 0.0)).id, 30.0)
    clock.request(0, 4, 30.0)
    assert clock.silent(100.0) == ()
    assert clock.silent(181.0) == (0,)


def test_a_grant_requested_ahead_takes_its_time_from_the_end_of_the_grant_before() -> None:
    clock = GrantClock(Schedule(100), TIMEOUT_S)
    clock.join(0, 0.0)
    first = granted(clock.request(0, 4, 0.0))
    second = granted(clock.request(0, 4, 10.0, held=first.id))
    clock.acknowledge(0, first.id, 30.0)
    clock.acknowledge(0, second.id, 50.0)
    clock.request(0, 4, 50.0)
    assert clock.silent(199.0) == ()
    assert clock.silent(201.0) == (0,), "after 5 times 30 seconds, not 40"


def test_snapshot_waits_for_every_live_worker_and_for_the_copy() -> None:
    clock = GrantClock(Schedule(8, snapshot=4), TIMEOUT_S)
    for worker in range(3):
        clock.join(worker, 0.0)
    first = granted(clock.request(0, 2, 0.0))
    second = granted(clock.request(1, 2, 0.0))
    third = granted(clock.request(2, 4, 0.0))
    assert third.start == 4
    clock.acknowledge(1, second.id, 0.0)
    clock.acknowledge(2, third.id, 0.0)
    assert clock.due == ()
    clock.acknowledge(0, first.id, 0.0)
    assert clock.due == (4, 8)
    clock.state_received(0, 4)
    clock.state_received(1, 4)
    clock.lose(2)
    assert clock.complete == (), "the center of snapshot 4 is not copied yet"
    clock.copied(4)
    assert clock.complete == (4,)
    assert granted(clock.request(0, 4, 0.0)).state_for == 8
    clock.closed(4)
    assert clock.complete == ()


def test_only_a_snapshot_of_the_schedule_may_be_left_out() -> None:
    clock = GrantClock(Schedule(12, snapshot=4), TIMEOUT_S)
    clock.acknowledge(0, granted(clock.request(0, 4, 0.0)).id, 0.0)
    assert clock.due == (4,)
    assert clock.may_be_left_out(4)
    clock.left_out(4)
    assert clock.due == ()
    assert not clock.awaits(0, 4)
    clock.acknowledge(0, granted(clock.request(0, 2, 0.0)).id, 0.0)
    clock.take_snapshot()
    assert clock.due == (6,)
    assert not clock.may_be_left_out(6), "a user asked for it"
    assert not clock.may_be_left_out(12), "it is the run's last"
    clock.stop_early()
    assert not clock.may_be_left_out(6)


def test_lost_tester_is_replaced() -> None:
    clock = GrantClock(Schedule(4, test_interval=4, test_initialization=False, snapshot_after_train=False), TIMEOUT_S)
    clock.acknowledge(0, granted(clock.request(0, 4, 0.0)).id, 0.0)
    assert granted(clock.request(0, 4, 0.0)).tests
    assert isinstance(clock.request(1, 4, 0.0), Wait)
    clock.lose(0)
    final = granted(clock.request(1, 4, 0.0))
    assert (final.start, final.count, final.tests) == (4, 0, True)
    clock.acknowledge(1, final.id, 0.0)
    assert clock.finished


def test_request_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="worker 3: grant of 0 steps requested; at least 1"):
        GrantClock(Schedule(4), TIMEOUT_S).request(3, 0, 0.0)


@dataclass
class World:
    """Workers that crash, stall and come back, over one clock; keeps a separate account of accepted steps."""

    clock: GrantClock
    now: float = 0.0
    evens_pace: bool = False
    held: dict[int, Grant] = field(default_factory=dict)
    late: list[tuple[int, Grant]] = field(default_factory=list)
    accepted: list[Grant] = field(default_factory=list)
    issued: list[Grant] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)

    def act(self, action: str, worker: int, amount: int) -> None:
        self.now += 0.5
        getattr(self, action)(worker, amount)
        accepted_steps = {s for g in self.accepted for s in range(g.start, g.stop)}
        for iteration in self.clock.due:
            assert set(range(self.clock.schedule.first, iteration)) <= accepted_steps, (
                "due before every step below it was acknowledged"
            )
            self.snapshots.append(iteration)
        settle(self.clock)
        # The state survives a restart of the server at any moment.
        copy = GrantClock(self.clock.schedule, TIMEOUT_S, evens_pace=self.evens_pace)
        copy.restore(json.loads(json.dumps(self.clock.to_state())))
        assert copy.to_state() == self.clock.to_state()
        self.clock = copy

    def work(self, worker: int, amount: int) -> None:
        answer = self.clock.request(worker, amount + 1, self.now)
        if isinstance(answer, Grant):
            if self.held.get(worker) != answer:
                self.issued.append(answer)
            self.held[worker] = answer
            self.clock.state_received(worker, answer.state_for)

    def finish(self, worker: int, _: int) -> None:
        if worker in self.held:
            self.answer(worker, self.held.pop(worker))

    def stall(self, worker: int, amount: int) -> None:
        """Everybody else lives; ``worker`` is silent for longer than allowed."""
        self.now += 1000.0 * (amount % 2)
        for other in range(4):
            if other != worker:
                self.clock.note_call(other, self.now)
        for lost in self.clock.silent(self.now):
            self.clock.lose(lost)
            if lost in self.held:
                self.late.append((lost, self.held.pop(lost)))

    def come_back(self, _: int, amount: int) -> None:
        if self.late:
            self.answer(*self.late.pop(amount % len(self.late)))

    def restart(self, worker: int, _: int) -> None:
        self.clock.join(worker, self.now)
        self.held.pop(worker, None)

    def leave(self, worker: int, _: int) -> None:
        self.clock.leave(worker)
        self.held.pop(worker, None)

    def answer(self, worker: int, grant: Grant) -> None:
        if self.clock.acknowledge(worker, grant.id, self.now):
            self.accepted.append(grant)
        assert not self.clock.acknowledge(worker, grant.id, self.now), "counted twice"


ACTIONS = ("work", "work", "work", "finish", "finish", "stall", "come_back", "restart", "leave")
schedules = st.builds(
    Schedule,
    max_iter=st.integers(0, 40),
    test_interval=st.integers(0, 12),
    test_initialization=st.booleans(),
    snapshot=st.integers(0, 12),
    snapshot_after_train=st.booleans(),
    first=st.integers(0, 20),
)
histories = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 3), st.integers(0, 9)), max_size=60)


@settings(max_examples=150)
@given(schedules, histories, st.booleans())
def test_every_step_is_accepted_once_whatever_happens(
    schedule: Schedule, history: list[tuple[str, int, int]], evens_pace: bool
) -> None:
    world = World(GrantClock(schedule, TIMEOUT_S, evens_pace=evens_pace), evens_pace=evens_pace)
    for action, worker, amount in history:
        world.act(action, worker, amount)
    for _ in range(400):
        if world.clock.finished:
            break
        for worker in range(4):
            world.act("work", worker, 5)
            world.act("finish", worker, 0)
    assert world.clock.finished
    first, last = min(schedule.first, schedule.max_iter), schedule.max_iter
    accepted = sorted(s for g in world.accepted for s in range(g.start, g.stop))
    assert accepted == list(range(first, last))
    assert world.clock.acknowledged == last
    due = []
    last_due = schedule.first
    while (following := schedule.next_snapshot(last_due)) is not None:
        due.append(following)
        last_due = following
    assert world.snapshots == due
    for grant in world.issued:
        inside = range(grant.start + 1, grant.stop)
        for period in (schedule.test_interval, schedule.snapshot):
            assert not (period and any(s % period == 0 for s in inside)), f"{grant} crosses a boundary"
        assert grant.stop <= last
        assert grant.tests == schedule.tests_at(grant.start) or grant.count == 0
    tested = {g.start for g in world.accepted if g.tests}
    assert tested == {s for s in range(first, last + 1) if schedule.tests_at(s)}


def test_a_worker_may_hold_several_grants_and_all_come_back_when_it_is_lost() -> None:
    clock = GrantClock(Schedule(max_iter=12), TIMEOUT_S)
    clock.join(0, 0.0)
    first = granted(clock.request(0, 4, 0.0))
    second = granted(clock.request(0, 4, 0.0, first.id))
    assert granted(clock.request(0, 4, 0.0, first.id)) == second  # a repeated request
    third = granted(clock.request(0, 4, 0.0, second.id))
    assert isinstance(clock.request(0, 4, 0.0, third.id), Wait)
    assert [grant.start for grant in (first, second, third)] == [0, 4, 8]
    assert clock.acknowledge(0, second.id, 0.0)
    clock.lose(0)
    clock.join(1, 0.0)
    reissued = granted(clock.request(1, 8, 0.0))
    assert (reissued.start, reissued.stop) == (0, 4)
    assert granted(clock.request(1, 8, 0.0, reissued.id)).start == 8


def busy_clock(schedule: Schedule, n_workers: int = 2) -> tuple[GrantClock, list[Grant]]:
    """A clock whose workers hold a grant of four steps each."""
    clock = GrantClock(schedule, TIMEOUT_S)
    for worker in range(n_workers):
        clock.join(worker, 0.0)
    return clock, [granted(clock.request(worker, 4, 0.0)) for worker in range(n_workers)]


def answer_states(clock: GrantClock, worker: int) -> int:
    """Send the state that the server requests; return the clock of the snapshot."""
    grant = granted(clock.request(worker, 4, 0.0))
    clock.state_received(worker, grant.state_for)
    clock.acknowledge(worker, grant.id, 0.0)
    return grant.state_for


def test_a_snapshot_on_demand_is_taken_at_the_present_clock_and_the_run_goes_on() -> None:
    clock, (first, second) = busy_clock(Schedule(max_iter=40, snapshot=10))
    clock.take_snapshot()
    clock.take_snapshot()
    assert clock.due == ()
    clock.acknowledge(0, first.id, 0.0)
    assert granted(clock.request(0, 4, 0.0)).start == 8
    clock.acknowledge(1, second.id, 0.0)
    assert clock.due == (8,)
    clock.copied(8)
    assert answer_states(clock, 1) == 8
    clock.state_received(0, 8)
    assert clock.complete == (8,)
    clock.closed(8)
    clock.take_snapshot()  # at 14, behind the schedule's own at 10, which is not done yet
    clock.acknowledge(0, 3, 0.0)
    while not clock.all_done:
        grant = granted(clock.request(0, 5, 0.0))
        clock.state_received(0, grant.state_for)
        clock.acknowledge(0, grant.id, 0.0)
    assert clock.due == (10, 14, 20, 30, 40)


def test_no_second_snapshot_at_the_same_clock() -> None:
    clock = GrantClock(Schedule(max_iter=8, first=4), TIMEOUT_S)
    clock.join(0, 0.0)
    clock.take_snapshot()
    assert clock.due == ()  # nothing was done since the snapshot that the run went on from


def test_a_stopped_run_finishes_what_is_granted_takes_a_snapshot_and_ends() -> None:
    clock, (first, second) = busy_clock(Schedule(max_iter=40, test_interval=40, snapshot=10))
    clock.stop_early()
    clock.stop_early()
    clock.acknowledge(0, first.id, 0.0)
    assert isinstance(clock.request(0, 4, 0.0), Wait)
    clock.lose(1)
    repeated = granted(clock.request(0, 4, 0.0))  # the lost worker's steps
    assert (repeated.start, repeated.stop) == (second.start, second.stop)
    clock.acknowledge(0, repeated.id, 0.0)
    assert (clock.due, clock.acknowledged, clock.end) == ((8,), 8, 8)
    clock.copied(8)
    assert answer_states(clock, 0) == 8
    clock.closed(8)
    assert isinstance(clock.request(0, 4, 0.0), Finished)


def test_a_run_stopped_now_leaves_out_grants_of_silent_workers() -> None:
    clock, (first, second) = busy_clock(Schedule(max_iter=40, snapshot=10))
    clock.stop_early()
    clock.acknowledge(1, second.id, 0.0)
    clock.stop_now()
    assert (clock.acknowledged, clock.due, clock.live_workers) == (4, (4,), (0, 1))
    clock.copied(4)
    assert clock.complete == ()
    assert answer_states(clock, 1) == 4
    assert clock.complete == (4,)
    clock.closed(4)
    assert not clock.acknowledge(0, first.id, 0.0)
    assert isinstance(clock.request(0, 4, 0.0), Finished)


def test_states_that_do_not_come_are_not_waited_for_for_ever() -> None:
    clock, (first, second) = busy_clock(Schedule(max_iter=40, snapshot=10))
    clock.stop_early()
    clock.acknowledge(0, first.id, 0.0)
    clock.acknowledge(1, second.id, 0.0)
    clock.copied(8)
    assert answer_states(clock, 1) == 8
    clock.stop_now()
    assert clock.complete == (8,)
    clock.closed(8)
    assert clock.finished
    restored = GrantClock(Schedule(max_iter=40, snapshot=10), TIMEOUT_S)
    restored.restore(json.loads(json.dumps(clock.to_state())))
    assert (restored.finished, restored.end) == (True, 8)


def seconds_with(n_workers: int, call: Callable[[GrantClock], object]) -> float:
    """Return the processor's time for a call while each of some workers holds a grant; the least of five."""
    clock = GrantClock(Schedule(10**6), TIMEOUT_S)
    for worker in range(n_workers):
        clock.join(worker, 0.0)
        clock.request(worker, 1, 0.0)
    times = []
    for _ in range(5):
        began = time.process_time()
        for _ in range(20):
            call(clock)
        times.append(time.process_time() - began)
    return min(times)


def give_and_take(clock: GrantClock) -> None:
    grant = granted(clock.request(3, 1, 0.0))
    assert clock.acknowledge(3, grant.id, 0.0)


@pytest.mark.parametrize(
    ("call", "most"),
    [
        pytest.param(lambda clock: clock.silent(TIMEOUT_S + 1.0), 40, id="silence of all: by the number, no square"),
        pytest.param(give_and_take, 5, id="a grant: the same"),
    ],
)
def test_a_thousand_workers_cost_the_lock_no_more_than_they_must(
    call: Callable[[GrantClock], object], most: float
) -> None:
    assert seconds_with(2_000, call) < most * max(1e-4, seconds_with(200, call))


def test_the_steps_behind_a_slow_worker_are_one_span() -> None:
    """A worker computes for hours beside a thousand others: the clock must not keep each grant."""
    clock = GrantClock(Schedule(10**6), TIMEOUT_S)
    slow = granted(clock.request(0, 4, 0.0))
    for number in range(300):
        first, second = granted(clock.request(1, 3, 1.0)), granted(clock.request(2, 5, 1.0))
        for worker, grant in ((2, second), (1, first)) if number % 2 else ((1, first), (2, second)):
            assert clock.acknowledge(worker, grant.id, 1.0)
    assert clock.to_state()["state"]["done_above"] == [(4, 4 + 300 * 8)]
    assert clock.acknowledged == 300 * 8
    assert clock.acknowledge(0, slow.id, 2.0)
    assert (clock.acknowledged, clock.to_state()["state"]["done_above"]) == (4 + 300 * 8, [])


@pytest.mark.parametrize(("n_workers", "seconds"), [(2, 0.05), (50, 0.05), (4_000, 4.0)])
def test_workers_that_wait_for_the_end_ask_a_thousand_times_a_second_together(n_workers: int, seconds: float) -> None:
    clock = GrantClock(Schedule(1), TIMEOUT_S)
    for worker in range(n_workers):
        clock.join(worker, 0.0)
    granted(clock.request(0, 1, 0.0))
    assert clock.request(1, 1, 0.0) == Wait(seconds)
