from __future__ import annotations

from pathlib import Path

import pytest

from deepspark_ops.train.worker.starts import (
    WRITE_EVERY_S,
    ExchangesFile,
    has_ended,
    has_start,
    note_start,
    starts_since_progress,
)


class Seconds:
    """A clock that stands at the next multiple of ``WRITE_EVERY_S`` with each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += WRITE_EVERY_S
        return self.now


def test_starts_count_from_the_last_process_that_exchanged(tmp_path: Path) -> None:
    driver = ExchangesFile(tmp_path, now=Seconds())
    assert not has_start(tmp_path)
    assert [note_start(tmp_path, 1, attempt) for attempt in range(3)] == [1, 2, 3]
    assert has_start(tmp_path)
    driver.see((9, 1))
    assert starts_since_progress(tmp_path, 1, 3) == 1, "the process that exchanged"
    assert note_start(tmp_path, 1, 3) == 2
    driver.see((20, 1))
    assert note_start(tmp_path, 1, 4) == 3, "the other worker's progress is not its own"
    driver.see((20, 7))
    assert note_start(tmp_path, 1, 5) == 2
    assert note_start(tmp_path, 0, 0) == 1


def test_a_worker_with_notes_on_another_host_has_started_once_it_exchanges(tmp_path: Path) -> None:
    driver = ExchangesFile(tmp_path, now=Seconds())
    driver.see((0, 0))
    assert not has_start(tmp_path)
    driver.see((0, 1))
    assert has_start(tmp_path)


def test_another_driver_counts_anew(tmp_path: Path) -> None:
    for _ in range(3):
        note_start(tmp_path, 0, 0)
    ExchangesFile(tmp_path)
    assert note_start(tmp_path, 0, 0) == 1


def test_the_end_of_a_run_is_noted_for_later_starts_until_the_next_driver(tmp_path: Path) -> None:
    driver = ExchangesFile(tmp_path)
    note_start(tmp_path, 0, 0)
    driver.see((1, 0))
    assert not has_ended(tmp_path)
    driver.see((1, 0), is_end=True)
    assert has_ended(tmp_path)
    ExchangesFile(tmp_path)
    assert not has_ended(tmp_path)
    ExchangesFile(Path("/dev/null/work")).see((1, 2), is_end=True)


def test_sparks_count_is_taken_where_nothing_can_be_noted() -> None:
    nowhere = Path("/dev/null/work")
    assert note_start(nowhere, 0, 4) == 5
    assert starts_since_progress(nowhere, 0, 4) == 4
    ExchangesFile(nowhere).see((1, 2))


def test_a_folder_that_was_removed_is_not_made_again(tmp_path: Path) -> None:
    assert note_start(tmp_path / "run" / "work", 0, 2) == 3
    assert not (tmp_path / "run").exists()


def test_the_driver_writes_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note_start(tmp_path, 0, 0)
    clock = [0.0]
    driver = ExchangesFile(tmp_path, now=lambda: clock[0])
    note_start(tmp_path, 0, 0)
    written = []
    replace = Path.replace
    monkeypatch.setattr(Path, "replace", lambda path, to: written.append(path) or replace(path, to))
    for tenth in range(31):
        clock[0] = tenth / 10
        driver.see((tenth,))
    assert len(written) == 4
