"""When an accuracy counts as reached, and by whom; contenders are scripts and files of events."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from deepspark_ops.events import append_event, make_event
from tests.paths import ROOT

SCRIPT = "time_to_accuracy"


def test_each_target_counts_from_the_first_test_that_shows_it(script: ModuleType) -> None:
    tests = [(101.0, 0.5), (102.0, 0.71), (103.0, 0.69), (104.0, 0.74), (105.0, 0.9)]
    reading = iter(tests)
    assert script.first_times(reading, (0.70, 0.73), 100.0) == [2.0, 4.0]
    assert next(reading) == (105.0, 0.9)  # nothing is read after the last target
    assert script.first_times(iter(tests[:3]), (0.70, 0.73), 100.0) == [2.0, None]


def test_a_median_exists_if_most_rounds_reached_the_target(script: ModuleType) -> None:
    assert script.middle([3.0, None, 5.0]) == 5.0
    assert script.middle([3.0, None, None]) is None


def test_the_best_of_both_sides_is_compared(script: ModuleType) -> None:
    times = {"ours 1": 20.0, "ours 2": 10.0, "torch": 15.0, "keras jax": 40.0}
    assert script.best_ratio(times) == 1.5
    assert script.best_ratio({"ours 1": 20.0, "torch": None}) is None


def script_that(code: str) -> subprocess.Popen[str]:
    """Start a script that may import the peers' modules."""
    environment = {"PYTHONPATH": str(ROOT / "benchmarks" / "peers")}
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)


def test_tests_of_a_script_are_read_beside_lines_of_libraries(script: ModuleType) -> None:
    lines = [{"clock": k, "accuracy": k / 10, "time": 100.0 + k} for k in (1, 2)]
    with script_that(f"from serve import say; print('{{a library'); [say(line) for line in {lines}]") as process:
        assert list(script.script_tests(process)) == [(101.0, 0.1), (102.0, 0.2)]


def test_a_script_without_a_test_is_an_error(script: ModuleType) -> None:
    with script_that("print()") as process:
        process.stdout.readline()
        with pytest.raises(ChildProcessError, match="printed no test"):
            list(script.script_tests(process))


def test_tests_of_a_run_are_read(script: ModuleType, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    first, second = (make_event("evaluation", clock=k, test_net=0, accuracy=k / 10) for k in (5, 6))
    append_event(events, first)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True) as process:
        tests = script.run_tests(process, events)
        assert next(tests)[1] == 0.5
        append_event(events, second)
        assert next(tests)[1] == 0.6
        process.communicate("\n")
        assert list(tests) == []
