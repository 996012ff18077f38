"""Turns of tasks that write a common folder, held by separate processes, and the trigger that waits for a turn."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deepspark_ops.operators.tasks import turn
from deepspark_ops.operators.tasks.turn import TurnTrigger, holder_of, turn_at
from deepspark_ops.stores.store_path import data_path
from tests.paths import ROOT

pytestmark = pytest.mark.airflow

HOLD = """
import sys
from pathlib import Path
from deepspark_ops.operators.tasks import turn
from deepspark_ops.operators.tasks.turn import turn_at
with turn_at(Path(sys.argv[1]), "task a of d, run r") as is_free:
    print(is_free, flush=True)
    sys.stdin.read()
"""


@contextmanager
def other_process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the turn at a folder until its stdin is closed."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        try:
            yield process
        finally:
            process.kill()


def events_of(trigger: TurnTrigger) -> list[Any]:
    async def collect() -> list[Any]:
        events = [event.payload async for event in trigger.run()]
        assert all(event.pop("until") == trigger.serialize()[1]["until"] for event in events)
        return events

    return asyncio.run(collect())


def test_a_turn_is_one_process_s_at_a_time_and_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "datasets" / "x"  # neither is there yet
    with other_process(folder) as process:
        with turn_at(folder, "task b") as is_free:
            assert not is_free
        holder = holder_of(folder)
        assert holder is not None
        assert holder.startswith("task a of d, run r, since 20")
        process.kill()
        process.wait()
        assert holder_of(folder) is None
        with turn_at(folder, "task b") as is_free:
            assert is_free
            assert str(holder_of(folder)).startswith("task b, since ")
    assert holder_of(folder) is None


class Log:
    """A trigger's log with lines for the test."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, text: str, *values: object) -> None:
        self.lines.append(text % values)

    warning = info


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log()
    monkeypatch.setattr(TurnTrigger, "log", log)
    return log


def test_a_dataset_in_a_store_is_written_without_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dataset = data_path("s3://bucket/sets/pets")
    with turn_at(dataset, "task a") as is_free:
        assert is_free
        assert holder_of(dataset) is None
    assert not list(tmp_path.iterdir())


def test_the_trigger_waits_until_its_time_is_over_or_the_turn_is_free_and_says_whom_it_waits_for(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "x"
    with other_process(folder) as process:
        (event,) = events_of(TurnTrigger(str(folder), time.time() + 0.2, poll_s=0.05))
        assert event["holder"].startswith("task a of d, run r")
        log.lines.clear()

        def holder_then_none(lock: Path) -> str | None:
            holder = holder_of(lock)
            process.kill()
            return holder

        monkeypatch.setattr(turn, "holder_of", holder_then_none)
        assert events_of(TurnTrigger(str(folder), time.time() + 60, poll_s=0.05)) == [{"holder": None}]
    (line,) = log.lines
    assert line.startswith(f"waits for its turn at {folder}: task a of d, run r, since ")


def test_a_free_turn_is_seen_only_after_the_scheduler_could_see_that_the_task_waits(tmp_path: Path, log: Log) -> None:
    began = time.monotonic()
    assert events_of(TurnTrigger(str(tmp_path / "x"), time.time() + 60, poll_s=0.3)) == [{"holder": None}]
    assert time.monotonic() - began >= 0.3


def test_a_triggerer_that_does_not_see_the_folder_wakes_the_task(tmp_path: Path, log: Log) -> None:
    assert events_of(TurnTrigger(str(tmp_path / "none" / "x"), time.time())) == [{"holder": None}]
    assert "cannot read" in log.lines[0]
