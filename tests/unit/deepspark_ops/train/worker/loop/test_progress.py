from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.events import MAX_EVENT_BYTES, Event
from deepspark_ops.exchange.transport.link import ExchangeReport
from deepspark_ops.stores.staging import fetched
from deepspark_ops.train.worker.loop import progress as progress_lines
from deepspark_ops.train.worker.loop.progress import ProgressLines, resident_bytes
from deepspark_ops.train.worker.net.model import StepReport
from tests.unit.deepspark_ops.train.small_plan import PLAN


class EventList:
    """Takes the events of a link."""

    def __init__(self) -> None:
        self.sent: list[Event] = []

    def send_event(self, event: Event) -> None:
        self.sent.append(event)


def progress_with(**plan: object) -> tuple[ProgressLines, list[Event]]:
    fetched.taken()  # by tests before: it counts for the whole process
    link = EventList()
    return ProgressLines(replace(PLAN, **plan), link), link.sent  # type: ignore[arg-type]


def report_of(losses: list[float], lines: list[str] | None = None) -> StepReport:
    values = np.float32(losses)
    outputs = {"loss": values, "accuracy": values / 4, "vector": np.ones((len(losses), 2), np.float32)}
    return StepReport(values, np.full(len(losses), 0.5, np.float32), outputs, (lambda _: lines) if lines else None)


def exchange(seconds: float, staleness: int, distance: float | None) -> ExchangeReport:
    return ExchangeReport(1, seconds, 40, 60, staleness, 1, distance, "shm")


def test_a_line_is_due_at_the_first_step_at_or_after_a_boundary() -> None:
    progress, _ = progress_with(display=5)
    assert [clock for clock in (0, 1, 4, 7, 8, 9, 10, 23, 24, 26) if progress.step_done(clock, 1.0)] == [
        0,
        7,
        10,
        23,
        26,
    ]
    assert progress.n_steps == 10


class SetClock:
    """Time as a test sets it."""

    seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        raise AssertionError("no part of a report sleeps")


def test_the_loss_is_sent_each_second_between_the_lines_and_more_seldom_in_a_long_run() -> None:
    clock = SetClock()
    progress, sent = progress_with(display=100, has_pulse=True, time=clock, average_loss=2)
    for step in range(1, 41):  # four steps a second
        clock.seconds = 0.25 * step
        progress.step_done(step, 100.0 - step)
    pulses = [event for event in sent if event.kind == "progress"]
    assert [event.clock for event in pulses] == list(range(4, 41, 4))
    assert [event.data["loss"] for event in pulses] == [
        100.5 - step for step in range(4, 41, 4)
    ]  # mean of the last two
    assert {event.data["images_per_s"] for event in pulses} == {32.0}  # of 8 images a step
    sent.clear()
    for second in range(10_000, 10_101):
        clock.seconds = float(second)
        progress.step_done(50, 1.0)
    gaps = {event.time for event in sent}
    assert 10 <= len(gaps) <= 11  # a thousandth of 10,000 s, for 100 s


def test_a_line_takes_the_place_of_a_pulse_and_a_virtual_run_has_none() -> None:
    clock = SetClock()
    progress, sent = progress_with(display=1, has_pulse=True, time=clock)
    for step in range(5):
        clock.seconds = float(step)
        assert progress.step_done(step, 1.0)
        progress.show(step, report_of([1.0]), 0)
    assert {event.kind for event in sent} == {"loss"}
    progress, sent = progress_with(display=0, time=clock)
    clock.seconds = 1000.0
    progress.step_done(6, 1.0)
    assert sent == []


def test_nothing_is_due_where_nothing_is_displayed() -> None:
    progress, sent = progress_with(display=0)
    assert not any(progress.step_done(clock, 1.0) for clock in range(10))
    assert not progress.is_line_near(10)
    assert sent == []


def test_lines_show_sums_since_the_last_ones() -> None:
    progress, sent = progress_with(display=2, average_loss=2)
    report = report_of([4.0, 2.0, 1.0])
    progress.begin_block(10.0, 10.125, 10.375, n_steps=3)
    for clock, loss in enumerate((4.0, 2.0, 1.0)):
        progress.step_done(clock, loss)
    for seconds, staleness, distance in ((0.001, 1, 3.0), (0.004, 2, None)):
        progress.exchanged(exchange(seconds, staleness, distance))
    progress.show(2, report, 2)
    loss, exchanged = sent
    assert (loss.kind, loss.clock, loss.worker) == ("loss", 2, PLAN.worker)
    expected = {"loss": 1.5, "learning_rate": 0.5, "compute_s": 0.25, "data_s": 0.125, "exchange_s": 0.0}
    expected |= {"first_call": True, "staleness": 1.5, "distance": 3.0, "outputs": {"loss": 1.0, "accuracy": 0.25}}
    measured = ("images_per_s", "memory_bytes")
    assert {name: value for name, value in loss.data.items() if name not in measured} == expected
    assert exchanged.kind == "exchange"
    expected = {"exchanges": 2, "seconds": 0.0, "bytes": 200, "p99_ms": 4.0, "overlaps": 2}
    assert dict(exchanged.data) == {**expected, "comm_period": 4, "transport": "shm"}
    progress.show(4, report, 2)
    assert [event.kind for event in sent[2:]] == ["loss"]
    assert {"staleness", "distance"}.isdisjoint(sent[2].data)
    assert progress.n_exchanges == 2


@pytest.mark.parametrize(("losses", "outputs"), [((4.0, 4.0), None), ((4.0, 2.0), {"loss": 2.0})])
def test_the_only_output_is_told_where_it_is_not_the_loss_of_the_line(
    losses: tuple[float, float], outputs: dict[str, float] | None
) -> None:
    progress, sent = progress_with(display=2, average_loss=2)
    report = StepReport(np.float32(losses), np.float32([0.5, 0.5]), {"loss": np.float32(losses)})
    progress.begin_block(10.0, 10.0, 10.5, n_steps=2)
    for clock, loss in enumerate(losses):
        progress.step_done(clock, loss)
    progress.show(2, report, 1)
    assert sent[0].data.get("outputs") == outputs


def test_a_line_has_the_time_at_which_its_step_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 50.0
    progress, sent = progress_with(display=1, time=FixedTime(lambda: now))
    monkeypatch.setattr("time.time", lambda: 1_000.0)
    now = 54.0
    progress.begin_block(50.0, 51.0, 54.0, n_steps=4)
    report = report_of([4.0, 3.0, 2.0, 1.0])
    for clock in range(4):
        assert progress.step_done(clock, 1.0)
        progress.show(clock, report, clock)
    assert [event.time for event in sent] == [997.0, 998.0, 999.0, 1_000.0]
    assert [(event.data["data_s"], event.data["compute_s"]) for event in sent] == [(0.25, 0.75)] * 4
    assert [event.data.get("first_call") for event in sent] == [True] * 4
    progress.begin_block(54.0, 54.0, 55.0, n_steps=1)
    progress.step_done(4, 1.0)
    progress.show(4, report, 0)
    assert "first_call" not in sent[-1].data


@pytest.mark.parametrize(("display", "n_steps", "last"), [(2, 4, [4]), (2, 3, []), (0, 4, [])])
def test_the_last_line_has_what_came_after_the_one_before(display: int, n_steps: int, last: list[int]) -> None:
    progress, sent = progress_with(display=display)
    report = report_of([1.0] * n_steps)
    progress.begin_block(0.0, 0.0, 4.0, n_steps=n_steps)
    for clock in range(n_steps):
        if progress.step_done(clock, 1.0):
            progress.show(clock, report, clock)
    n_before = len(sent)
    progress.finish(n_steps, report)
    assert [event.clock for event in sent[n_before:]] == last


class FixedTime:
    """A plan's time that a test sets."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now


def test_a_line_says_how_much_memory_the_process_holds(tmp_path: Path) -> None:
    progress, sent = progress_with(display=1)
    progress.step_done(0, 1.0)
    old_bytes = resident_bytes()
    ballast = np.ones(1 << 23, np.float64)  # 64 MiB, each page written
    progress.show(0, report_of([1.0]), 0)
    grown = sent[0].data["memory_bytes"] - old_bytes
    assert ballast.nbytes * 0.9 < grown < ballast.nbytes * 1.5
    (tmp_path / "statm").write_text("100 7 3\n")
    assert resident_bytes(tmp_path / "statm") == 7 * os.sysconf("SC_PAGE_SIZE")
    assert resident_bytes(tmp_path / "no such file") is None


def test_many_debug_lines_go_in_several_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_lines, "DEBUG_LINES", 2)
    progress, sent = progress_with(display=1)
    lines = [f"    [Forward] {number}" for number in range(5)]
    progress.step_done(0, 1.0)
    progress.show(0, report_of([1.0], lines), 0)
    assert [event.data["lines"] for event in sent[:-1]] == [lines[:2], lines[2:4], lines[4:]]


def test_a_distance_is_asked_for_where_a_line_may_come_before_the_next_exchange() -> None:
    progress, _ = progress_with(display=100)
    assert not progress.is_line_near(0), "nothing is known of boundaries before the first step"
    progress.step_done(0, 1.0)
    # Two periods of 4 minibatches ahead.
    assert [clock for clock in (50, 91, 92, 99) if progress.is_line_near(clock)] == [92, 99]


def test_an_empty_note_is_not_sent() -> None:
    progress, sent = progress_with()
    for text in (None, "", "something"):
        progress.note(3, text)
    assert [event.data["text"] for event in sent] == ["something"]


def test_an_event_that_would_be_refused_for_its_size_is_a_note() -> None:
    progress, sent = progress_with()
    progress.send("debug", 7, lines=["x" * MAX_EVENT_BYTES])
    (event,) = sent
    assert (event.kind, event.clock) == ("note", 7)
    assert event.data["text"].startswith("an event of kind debug with 1,048,")
