"""Turns by virtual time: who goes next, who waits, who dies, and what happens when a thread fails."""

from __future__ import annotations

import math
from functools import partial

import pytest

from deepspark_ops.errors import TrainingFailed
from deepspark_ops.simulation.virtual_time import VirtualTime, WorkerDied, WorkerTime


def test_the_earliest_goes_first_and_equal_times_go_by_number() -> None:
    time = VirtualTime(3)
    moments: list[tuple[float, int]] = []

    def work(worker: int) -> None:
        worker_time = WorkerTime(time, worker)
        for _ in range(3):
            worker_time.sleep((2.0, 1.0, 2.0)[worker])
            moments.append((worker_time.now(), worker))

    time.run([partial(work, worker) for worker in range(3)])
    assert moments == [(1, 1), (2, 0), (2, 1), (2, 2), (3, 1), (4, 0), (4, 2), (6, 0), (6, 2)]
    assert time.now() == 6.0


def test_a_moment_that_has_passed_is_now() -> None:
    time = VirtualTime(1)

    def work() -> None:
        worker_time = WorkerTime(time, 0)
        worker_time.until(5.0)
        worker_time.until(3.0)

    time.run([work])
    assert time.now() == 5.0


def test_a_sleeper_goes_on_when_it_is_woken() -> None:
    time = VirtualTime(2)
    woken: list[float] = []

    def sleep() -> None:
        WorkerTime(time, 0).until_woken()
        woken.append(time.now())

    def wake() -> None:
        WorkerTime(time, 1).until(7.0)
        time.wake_if_asleep(0)
        time.wake_if_asleep(0)  # it is awake now: nothing happens

    time.run([sleep, wake])
    assert woken == [7.0]


@pytest.mark.parametrize("is_asleep", [True, False])
def test_a_worker_dies_when_its_time_has_come(is_asleep: bool) -> None:
    time = VirtualTime(2)
    died: list[float] = []

    def work() -> None:
        worker_time = WorkerTime(time, 0, [4.0, 5.0, 20.0])
        for _ in range(2):
            with pytest.raises(WorkerDied):
                worker_time.until_woken() if is_asleep else worker_time.until(30.0)
            died.append(worker_time.now())
            worker_time.pause(3.0)  # who is dead does not die again
            worker_time.until(10.0)

    time.run([work, lambda: WorkerTime(time, 1).until(1.0)])
    assert died == [4.0, 20.0]


def test_a_thread_that_fails_stops_the_others() -> None:
    time = VirtualTime(2)
    later_moments: list[float] = []

    def work() -> None:
        WorkerTime(time, 0).until(100.0)
        later_moments.append(time.now())

    def fail() -> None:
        msg = "the disk is full"
        raise OSError(msg)

    with pytest.raises(OSError, match="the disk is full"):
        time.run([work, fail])
    assert not later_moments


def test_workers_that_wait_for_each_other_for_good_are_an_error() -> None:
    time = VirtualTime(2)
    with pytest.raises(TrainingFailed, match="virtual workers 0, 1 wait for each other"):
        time.run([lambda: WorkerTime(time, 0).until_woken(), lambda: WorkerTime(time, 1).until_woken()])
    assert not math.isinf(time.now())


def test_a_thread_beside_a_worker_shares_its_time() -> None:
    time = VirtualTime(2)
    moments: list[tuple[float, str]] = []

    def work() -> None:
        worker_time = WorkerTime(time, 0)
        with worker_time.thread() as thread:
            future = thread.submit(
                lambda: [worker_time.sleep(3.0), moments.append((worker_time.now(), "beside"))] and "its result"
            )
            worker_time.sleep(2.0)
            moments.append((worker_time.now(), "worker"))
            assert future.result() == "its result"
            assert worker_time.now() == 3.0
            thread.submit(worker_time.sleep, 4.0)
        assert worker_time.now() == 7.0  # the end of the thread

    def other() -> None:
        WorkerTime(time, 1).until(3.0)
        moments.append((time.now(), "other"))

    time.run([work, other])
    assert moments == [(2.0, "worker"), (3.0, "other"), (3.0, "beside")]


def test_the_error_of_a_thread_beside_a_worker_is_the_workers() -> None:
    time = VirtualTime(1)

    def work() -> None:
        worker_time = WorkerTime(time, 0, [2.0])
        future = worker_time.thread().submit(worker_time.sleep, 5.0)
        worker_time.sleep(1.0)
        with pytest.raises(WorkerDied, match="second 2"):
            future.result()

    time.run([work])
    assert time.now() == 2.0
