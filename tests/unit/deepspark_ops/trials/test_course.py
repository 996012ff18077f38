"""Tests, times and bytes of a training, against cases worked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from deepspark_ops.events import DRIVER, Event
from deepspark_ops.trials.course import AccuracyPoint, Course, read_course, time_to


def event(kind: Any, clock: int, time: float, worker: int = DRIVER, **data: Any) -> Event:
    return Event(kind, clock, worker, data, time)


def began(clock: int, time: float) -> list[Event]:
    """A start whose first worker begins its first minibatch 10 s later: the programs take this time to start."""
    return [
        event("stage", clock, time, stage="train", status="started", max_iter=400),
        event("worker_joined", clock, time + 8.0, 1, transport="shm"),
        event("worker_joined", clock, time + 9.0, 0, transport="shm"),
        event("loss", clock, time + 11.0, 1, loss=2.0, compute_s=0.5, data_s=0.25, exchange_s=0.25),
    ]


def accuracy_at(clock: int, time: float, accuracy: float, *, net: int = 0, seconds: float = 0.5) -> Event:
    return event("evaluation", clock, time, 0, test_net=net, accuracy=accuracy, loss=1.0, seconds=seconds)


def test_time_counts_from_the_first_minibatch_to_when_the_parameters_were_taken() -> None:
    course = read_course(
        [
            *began(0, 1000.0),
            accuracy_at(100, 1014.5, 0.75),
            accuracy_at(0, 1011.5, 0.125, seconds=1.0),  # noted later by a slower worker, of an earlier clock
            accuracy_at(200, 1020.5, 0.875),
            event("server", 200, 1021.0, exchanges=7, moved_bytes=1_000),
            event("stage", 200, 1022.0, status="finished", exchanges=8, moved_bytes=1_152, images_per_s=640.0),
        ]
    )
    points = (AccuracyPoint(0, 0.5, 0.125), AccuracyPoint(100, 4.0, 0.75), AccuracyPoint(200, 10.0, 0.875))
    assert course == Course(points, seconds=12.0, exchanges=8, moved_bytes=1_152, images_per_s=640.0)
    assert course.last_accuracy == 0.875


def test_an_early_stop_has_a_reason_and_a_clock_until_the_training_goes_on() -> None:
    ended = event("stage", 50, 1012.0, status="finished", exchanges=1, moved_bytes=1, early_stop="accuracy 0.1")
    course = read_course([*began(0, 1000.0), ended])
    assert (course.early_stop, course.stopped_at) == ("accuracy 0.1", 50)
    resumed_course = read_course([*began(0, 1000.0), ended, *began(50, 2000.0)])
    assert (resumed_course.early_stop, resumed_course.stopped_at) == ("", None)


def test_a_training_that_was_started_again_keeps_the_time_and_bytes_it_has_spent() -> None:
    course = read_course(
        [
            *began(0, 1000.0),
            accuracy_at(100, 1014.5, 0.75),
            accuracy_at(200, 1018.5, 0.9),  # of work after the last snapshot: lost
            event("server", 150, 1016.0, exchanges=5, moved_bytes=500),
            event(
                "server", 200, 1020.0, exchanges=3, moved_bytes=800
            ),  # the bytes count up, the exchanges are new ones
            *began(150, 2000.0),
            accuracy_at(200, 2015.5, 0.8),
            event("stage", 200, 2017.0, status="finished", exchanges=4, moved_bytes=400, images_per_s=10.0),
        ]
    )
    # The first start trained for 10 s; the second one's test was 5 s after its first minibatch began.
    assert course.tests == (AccuracyPoint(100, 4.0, 0.75), AccuracyPoint(200, 15.0, 0.8))
    assert course.seconds == 10.0 + 7.0
    assert (course.exchanges, course.moved_bytes) == (5 + 3 + 4, 800 + 400)


def test_only_the_first_test_net_that_says_an_accuracy_counts() -> None:
    course = read_course(
        [
            *began(0, 0.0),
            event("evaluation", 0, 11.0, 0, test_net=0, loss=2.0, seconds=0.0),
            accuracy_at(0, 12.0, 0.5, net=1, seconds=0.0),
            accuracy_at(0, 13.0, 0.25, net=2, seconds=0.0),
            event("evaluation", 9, 14.0, 0, test_net=1, accuracy="nan", seconds=0.0),
        ]
    )
    assert course.tests == (AccuracyPoint(0, 2.0, 0.5),)


@pytest.mark.parametrize("events", [[], began(0, 5.0)[:1], [accuracy_at(0, 1.0, 0.5)]])
def test_a_training_that_never_trained_has_nothing(events: list[Event]) -> None:
    assert read_course(events) == Course((), 0.0, None, None, None)


def test_time_to_an_accuracy_is_that_of_the_first_test_that_reached_it() -> None:
    up_and_down = [
        AccuracyPoint(0, 0.0, 0.1),
        AccuracyPoint(100, 3.0, 0.92),
        AccuracyPoint(200, 6.0, 0.85),
        AccuracyPoint(300, 9.0, 0.95),
    ]
    assert time_to(up_and_down, 0.9) == up_and_down[1]
    assert time_to(up_and_down, 0.92) == up_and_down[1]
    assert time_to(up_and_down, 0.93) == up_and_down[3]
    assert time_to(up_and_down, 0.96) is None
    late = [
        AccuracyPoint(100, 5.0, 0.9),
        AccuracyPoint(200, 4.0, 0.9),
    ]  # two workers test; the later clock was ready first
    assert time_to(late, 0.9) == late[1]
