"""One driver per run folder."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from pathlib import Path

import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.train.driver.run_folder import sole_owner


def test_one_driver_per_folder(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with sole_owner(run_dir):
        (run_dir / "file").write_text("")
        with pytest.raises(ConfigError) as raised, sole_owner(run_dir):
            pass
    assert str(raised.value) == (
        f"run_dir={run_dir}: process {os.getpid()} on host {socket.gethostname()} is training there; wait for it or"
        " give another run_dir"
    )
    with sole_owner(run_dir):
        pass
    assert [path.name for path in run_dir.iterdir()] == ["file"]


@pytest.mark.parametrize("error", [None, errno.ENOLCK], ids=["locks of this host only", "no locks"])
def test_a_driver_on_another_host_is_seen_by_its_signs_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int | None
) -> None:
    """A file system that does not show locks to other hosts, or has none."""

    def flock(handle: int, operation: int) -> None:
        if error is not None:
            raise OSError(error, "no locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    with sole_owner(tmp_path / "run", host="first", beat_s=0.05):
        with pytest.raises(ConfigError, match=rf"process {os.getpid()} on host first is training there"):
            with sole_owner(tmp_path / "run", host="second", beat_s=0.2):
                pass
    with sole_owner(tmp_path / "run", host="second", beat_s=0.05):
        pass
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("host", ["first", "second"])
def test_a_driver_that_died_holds_nothing(tmp_path: Path, host: str) -> None:
    (tmp_path / "driver.lock").write_text('{"host": "first", "pid": 4194305, "beat": 7}')
    with sole_owner(tmp_path, host=host, beat_s=0.02):
        assert json.loads((tmp_path / "driver.lock").read_text())["host"] == host
    assert list(tmp_path.iterdir()) == []


def test_a_lock_file_that_the_last_holder_removes_is_not_taken_for_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "driver.lock"
    opened, lock = [], fcntl.flock

    def flock(handle: int, operation: int) -> None:
        if not opened:
            path.unlink()  # between our opening and our lock
        opened.append(handle)
        lock(handle, operation)

    monkeypatch.setattr("fcntl.flock", flock)
    with sole_owner(tmp_path):
        assert len(opened) == 2
        with pytest.raises(ConfigError, match="is training there"), sole_owner(tmp_path):
            pass


def test_folder_that_stays_empty_is_not_left(tmp_path: Path) -> None:
    with sole_owner(tmp_path / "run"):
        pass
    assert not (tmp_path / "run").exists()


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"run_dir=.*file/run"), sole_owner(tmp_path / "file" / "run"):
        pass
