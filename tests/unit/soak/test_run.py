"""Accounts of the drivers of a run: each driver leaves an account, and the next driver goes on from a snapshot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.soak.faults import DRIVER, Fault, InjectedFault
from tests.soak.ledger import Account
from tests.soak.run import Part, Plan, RunResult, _judge

INITIAL = np.zeros(4, np.float32)


def drivers(*, n_finished: int = 60, snapshot: int = 50, goes_on_from: int = 50) -> list[Part]:
    """Return a driver that was killed at 70 s after ``n_finished`` steps, and a driver that reached clock 100."""
    death = InjectedFault(Fault(60.0, "kill driver", DRIVER, 0.0, 1), 70.0, 70.0)
    first = Part(
        snapshot=snapshot, initial=INITIAL, n_starts=4, clock=[(10.0, 5), (69.0, n_finished)], injected=[death]
    )
    first.account = Account(granted=[(0, n_finished)], finished=[(0, n_finished)])
    last = Part(first=goes_on_from, is_over=True, initial=INITIAL, n_starts=4, acknowledged=100)
    last.clock = [(80.0, goes_on_from + 5), (100.0, 100)]
    last.account = Account(granted=[(goes_on_from, 100)], finished=[(goes_on_from, 100)])
    return [first, last]


def judged(parts: list[Part], run_dir: Path) -> RunResult:
    result = RunResult(Plan("run", 100))
    _judge(result, parts, run_dir, [])
    return result


def test_steps_behind_the_snapshot_are_repeated_and_none_is_lost(tmp_path: Path) -> None:
    result = judged(drivers(), tmp_path)
    assert (result.findings, result.lost, result.acknowledged) == ([], 0, 100)
    assert (result.n_driver_starts, result.n_server_starts, result.n_starts) == (2, 2, 8)
    assert (result.begun, result.seconds) == (10.0, 90.0)
    (death,) = result.injected
    assert (death.clock_s, death.stall_s) == (10.0, 11.0)


@pytest.mark.parametrize(
    ("changes", "lost", "finding"),
    [
        ({"goes_on_from": 40}, 0, "a driver went on from 40, although the snapshot of 50 was whole"),
        ({"n_finished": 45}, 5, "5 steps are in no grant, 0 are done twice"),
    ],
)
def test_a_skipped_snapshot_and_steps_without_a_worker_are_findings(
    tmp_path: Path, changes: dict[str, int], lost: int, finding: str
) -> None:
    result = judged(drivers(**changes), tmp_path)
    assert (result.findings, result.lost) == ([finding], lost)


def test_a_run_that_was_broken_off_is_not_blamed_for_the_files_that_the_next_driver_would_read(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "journal").touch()
    parts = drivers()
    finished, broken_off = judged(parts, tmp_path), judged([parts[0], replace(parts[1], is_over=False)], tmp_path)
    assert [finding.rpartition("/")[2] for finding in finished.findings] == ["work is there", "journal is there"]
    assert broken_off.findings == []


def test_a_driver_that_dies_behind_its_last_snapshot_leaves_nothing_to_do(tmp_path: Path) -> None:
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "snapshots" / "lenet_iter_100.state.h5").touch()
    first = drivers(n_finished=100, snapshot=90)[0]
    result = RunResult(Plan("run", 100))
    _judge(result, [first, Part(is_over=True)], tmp_path, ["snapshots", "snapshots/lenet_iter_100.state.h5"])
    assert (result.findings, result.lost, result.n_driver_starts) == ([], 0, 2)
