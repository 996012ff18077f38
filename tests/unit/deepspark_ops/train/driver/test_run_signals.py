"""Signals to a run: stop with a snapshot, take a snapshot and go on, or end at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest

from deepspark_ops.exchange.transport.link import ExchangeStatus
from deepspark_ops.train.driver import run_signals
from deepspark_ops.train.driver.run_signals import RunSignals, watch_run

STATUS = ExchangeStatus(0, 0, False, (), 0, (), None, (), 0, (), (), 0, 0, 0)


class FakeRun:
    """A run of ten looks, or a run that ends after ``ends_after`` messages; sends signals to itself."""

    def __init__(self, signals_at: dict[int, signal.Signals], *, ends_after: int = 1) -> None:
        self.controls: list[str] = []
        self.looks = 0
        self._signals_at = signals_at
        self._ends_after = ends_after

        self.stops_early_at = 100

    def control(self, message: object) -> None:
        self.controls.append(type(message).__name__)

    def step(self) -> ExchangeStatus:
        stops = [name for name in self.controls if name.startswith("Stop")]
        return replace(STATUS, finished=len(stops) >= self._ends_after or self.looks >= 10)

    def is_busy(self) -> bool:
        self.looks += 1
        if (number := self._signals_at.get(self.looks)) is not None:
            os.kill(os.getpid(), number)
        return self.looks < 10

    def watch(self, signals: RunSignals) -> ExchangeStatus:
        return watch_run(self.step, self.is_busy, self, signals, self.stop_reason)  # type: ignore[arg-type]

    def stop_reason(self) -> str:
        return "accuracy 0.1" if self.looks >= self.stops_early_at else ""


@pytest.fixture
def signals() -> Iterator[RunSignals]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    old_handlers = [signal.signal(number, signal.SIG_DFL) for number in numbers]
    yield RunSignals()
    for number, handler in zip(numbers, old_handlers, strict=True):
        signal.signal(number, handler)


def test_a_run_without_signals_goes_to_its_end(signals: RunSignals) -> None:
    run = FakeRun({})
    assert run.watch(signals).finished
    assert (run.controls, signals.stopped_by) == ([], None)


@pytest.mark.parametrize(("live_workers", "looks"), [((), 2), ((1,), 10)])
def test_tasks_of_lost_workers_do_not_keep_a_run_that_is_done(
    signals: RunSignals, monkeypatch: pytest.MonkeyPatch, live_workers: tuple[int, ...], looks: int
) -> None:
    monkeypatch.setattr(run_signals, "LAST_TASKS_S", 0.0)
    run = FakeRun({})
    finished = replace(STATUS, finished=True, live_workers=live_workers)
    assert watch_run(lambda: finished, run.is_busy, run, signals, lambda: "") == finished  # type: ignore[arg-type]
    assert run.looks == looks


def test_a_reason_to_stop_early_ends_the_run_with_a_snapshot_and_without_a_signal(
    signals: RunSignals, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    run = FakeRun({})
    run.stops_early_at = 3
    assert run.watch(signals).finished
    assert (run.controls, signals.stopped_by) == (["StopEarly"], None)
    assert "accuracy 0.1: the run stops early and takes a snapshot" in caplog.text


def test_sighup_takes_a_snapshot_and_the_run_goes_on(signals: RunSignals) -> None:
    run = FakeRun({3: signal.SIGHUP})
    assert run.watch(signals).finished
    assert (run.controls, run.looks, signals.stopped_by) == (["TakeSnapshot"], 10, None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_stops_with_a_snapshot(signals: RunSignals, number: signal.Signals) -> None:
    run = FakeRun({3: number})
    assert run.watch(signals).finished
    assert (run.controls, run.looks, signals.stopped_by) == (["StopEarly"], 10, number)


@pytest.mark.parametrize(
    ("ends_after", "controls"), [(2, ["StopEarly", "StopNow"]), (99, ["StopEarly", "StopNow", "StopNow"])]
)
def test_workers_that_do_not_answer_are_left_out(
    signals: RunSignals, monkeypatch: pytest.MonkeyPatch, ends_after: int, controls: list[str]
) -> None:
    monkeypatch.setitem(run_signals.PATIENCE_S, signal.SIGTERM, 0.0)
    monkeypatch.setattr(run_signals, "_STATES_S", 0.0)
    run = FakeRun({3: signal.SIGTERM}, ends_after=ends_after)
    run.watch(signals)
    assert run.controls == controls


def test_workers_that_have_ended_are_not_waited_for(signals: RunSignals) -> None:
    run = FakeRun({9: signal.SIGINT}, ends_after=2)
    assert run.watch(signals).finished
    assert run.controls == ["StopEarly", "StopNow"]


@pytest.mark.parametrize(("first", "second"), [(signal.SIGINT, signal.SIGINT), (signal.SIGINT, signal.SIGTERM)])
def test_the_second_signal_ends_at_once(signals: RunSignals, first: signal.Signals, second: signal.Signals) -> None:
    run = FakeRun({3: first, 4: second}, ends_after=99)
    with pytest.raises(SystemExit) as ended:
        run.watch(signals)
    assert ended.value.code == 128 + second
    assert run.controls == ["StopEarly"]


def test_before_training_a_signal_ends_at_once(signals: RunSignals) -> None:
    with pytest.raises(SystemExit) as ended:
        os.kill(os.getpid(), signal.SIGINT)
    assert ended.value.code == 130


def test_ignored_signals_stay_ignored(signals: RunSignals) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    RunSignals()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_the_death_of_the_parent_is_not_the_second_signal(signals: RunSignals, monkeypatch: pytest.MonkeyPatch) -> None:
    run = FakeRun({3: signal.SIGTERM, 4: signal.SIGTERM}, ends_after=99)
    monkeypatch.setattr(os, "getppid", lambda: 1)
    run.watch(signals)
    assert run.controls[0] == "StopEarly"
    assert run.looks > 4
