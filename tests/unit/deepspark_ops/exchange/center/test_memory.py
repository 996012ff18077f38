from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.errors import ConfigError, ProtocolError
from deepspark_ops.exchange.center import memory as center_memory
from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.memory import CenterShape, remove_stale_centers


@pytest.fixture
def in_work_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Have no shared memory, so that centers land in the run's work folder."""
    monkeypatch.setattr(center_memory, "SHARED_MEMORY", tmp_path / "none")
    return tmp_path / "work"


def create(work: Path, values: list[float], n_workers: int = 2, server_vectors: int = 0) -> Center:
    return Center.create(
        np.float32(values), CenterShape(len(values), n_workers, 1, server_vectors), run_id=5, work=work
    )


def test_two_mappings_share_vector_extras_and_slots(in_work_folder: Path) -> None:
    first = create(in_work_folder, [1.0, 2.0, 3.0], server_vectors=2)
    assert first.path is not None
    second = Center.open(first.path, first.token)
    first.vector[1] = 7.0
    first.extras[1][2] = 8.0
    first.counters[1, 3] = 9
    assert second.vector.tolist() == [1.0, 7.0, 3.0]
    assert second.extras[1].tolist() == [0.0, 0.0, 8.0]
    assert second.counters[1].tolist() == [0, 0, 0, 9, *[0] * 12]
    second.close()
    first.unlink()
    first.close()


def test_exchanges_by_memory_are_counted_at_every_server(in_work_folder: Path) -> None:
    shape = CenterShape(4, 2, 1, n_servers=3)
    driver = Center.create(np.zeros(4, np.float32), shape, run_id=5, work=in_work_folder)
    assert driver.path is not None
    by_memory = Center.open(driver.path, driver.token, server=None)
    last_server = Center.open(driver.path, driver.token, server=2)
    last_server.pulled(0)
    for _ in range(2):
        by_memory.end(1, by_memory.begin(1), 0)
    assert last_server.begin(0).staleness == 2
    assert by_memory.begin(1).staleness == 0  # the other one's is open
    last_server.end(0, last_server.reopened(0, 0.0, 0), 0)
    assert driver.all_counters[:, 1, 0].tolist() == [3, 3, 3]
    assert driver.all_counters[:, 1, 1].tolist() == [2, 2, 2]
    assert driver.all_counters[:, 0, 1].tolist() == [0, 0, 1]
    for center in (by_memory, last_server, driver):
        center.unlink()
        center.close()


def test_file_is_the_users_alone_and_reserved_in_full(in_work_folder: Path) -> None:
    center = create(in_work_folder, [0.0] * 10_000)
    assert center.path is not None
    status = center.path.stat()
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_blocks * 512 >= status.st_size
    center.unlink()
    center.close()
    assert list(in_work_folder.iterdir()) == []


def test_no_room_is_one_clear_error(in_work_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ConfigError, match=r"no room for a center of 16,384 bytes \(No space left on device\)"):
        create(in_work_folder, [0.0])
    assert list(in_work_folder.iterdir()) == []


def test_file_of_another_exchange_is_refused(in_work_folder: Path) -> None:
    center = create(in_work_folder, [0.0])
    assert center.path is not None
    with pytest.raises(ProtocolError, match="belongs to another exchange"):
        Center.open(center.path, bytes(16))
    other = in_work_folder / "other"
    other.write_bytes(b"not a center, but long enough to hold the header" * 2)
    with pytest.raises(ProtocolError, match="not a center file of version 5"):
        Center.open(other)
    other.write_bytes(b"short")
    with pytest.raises(ProtocolError, match="5 bytes; a center has a header"):
        Center.open(other)
    center.unlink()
    center.close()


def test_only_centers_that_nobody_holds_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(center_memory, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(center_memory, "SHARED_MEMORY_SPARE_BYTES", 0)
    held = create(tmp_path, [0.0])
    abandoned = create(tmp_path, [0.0])
    assert abandoned.path is not None
    abandoned.close()
    assert remove_stale_centers(tmp_path / "work") == [abandoned.path]
    assert held.path is not None
    assert held.path.exists()
    held.unlink()
    held.close()


@pytest.mark.parametrize("kind", ["folder", "link loop", "pipe"])
def test_what_is_no_center_file_keeps_no_run_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Anybody may make any name in shared memory."""
    monkeypatch.setattr(center_memory, "SHARED_MEMORY", tmp_path)
    foreign = tmp_path / "deepspark-0-1-2.center"
    if kind == "folder":
        foreign.mkdir()
    elif kind == "pipe":
        os.mkfifo(foreign)
    else:
        foreign.symlink_to(foreign)
    assert remove_stale_centers(tmp_path / "work") == []
    assert os.path.lexists(foreign)


def test_a_center_that_may_not_be_removed_keeps_no_run_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sticky bit of shared memory: a file of another user that everybody may write cannot be removed."""
    monkeypatch.setattr(center_memory, "SHARED_MEMORY", tmp_path)
    foreign = tmp_path / "deepspark-0-1-2.center"
    foreign.write_bytes(b"")

    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    assert remove_stale_centers(tmp_path / "work") == []


def test_a_file_swept_before_it_was_locked_is_made_again(in_work_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, n_calls = fcntl.flock, []

    def sweep_first(handle: int, operation: int) -> None:
        if not n_calls:
            next(in_work_folder.glob("*.center")).unlink()
        n_calls.append(handle)
        lock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", sweep_first)
    center = create(in_work_folder, [4.0])
    assert center.path is not None
    assert center.path.exists()
    assert center.vector.tolist() == [4.0]
    center.unlink()
    center.close()
