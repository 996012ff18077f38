"""Locks on files that a holder removes."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from deepspark_ops import file_lock
from deepspark_ops.errors import DataError
from deepspark_ops.file_lock import held_lock

BUSY = DataError("busy")


def test_a_lock_whose_file_the_last_holder_removed_keeps_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, waits, holds, is_over = tmp_path / "lock", threading.Event(), threading.Event(), threading.Event()
    sleep = time.sleep
    monkeypatch.setattr(file_lock.time, "sleep", lambda seconds: (waits.set(), sleep(seconds)))

    def hold_after_the_first_holder() -> None:
        with held_lock(path, 30, BUSY):
            holds.set()
            is_over.wait(30)

    second = threading.Thread(target=hold_after_the_first_holder)
    with held_lock(path, 0, BUSY):
        second.start()
        assert waits.wait(30)
        path.unlink()
    assert holds.wait(30)
    try:
        with pytest.raises(DataError, match="busy"), held_lock(path, 0, BUSY):
            pass
    finally:
        is_over.set()
        second.join(30)
    with held_lock(path, 0, BUSY):
        pass
