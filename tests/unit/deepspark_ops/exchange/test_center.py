from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.errors import ConfigError, ProtocolError
from deepspark_ops.exchange import center as center_module
from deepspark_ops.exchange.center import Center, CenterShape, Chunks, meet_in_memory, remove_stale_centers
from deepspark_ops.exchange.strategies import Terms, find_strategy
from deepspark_ops.param_vector import StatisticBlobs


@pytest.fixture
def in_work_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Have no shared memory, so that centers land in the run's work folder."""
    monkeypatch.setattr(center_module, "SHARED_MEMORY", tmp_path / "none")
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
    first.slots[1, 3] = 9
    assert second.vector.tolist() == [1.0, 7.0, 3.0]
    assert second.extras[1].tolist() == [0.0, 0.0, 8.0]
    assert second.slots[1].tolist() == [0, 0, 0, 9, *[0] * 12]
    second.close()
    first.unlink()
    first.close()


def test_file_is_the_users_alone_and_reserved_in_full(in_work_folder: Path) -> None:
    center = create(in_work_folder, [0.0] * 10_000)
    assert center.path is not None
    found = center.path.stat()
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert found.st_blocks * 512 >= found.st_size
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
    with pytest.raises(ProtocolError, match="not a center file of version 2"):
        Center.open(other)
    other.write_bytes(b"short")
    with pytest.raises(ProtocolError, match="5 bytes; a center has a header"):
        Center.open(other)
    center.unlink()
    center.close()


def test_only_centers_that_nobody_holds_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(center_module, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(center_module, "SHARED_MEMORY_SPARE_BYTES", 0)
    held = create(tmp_path, [0.0])
    left = create(tmp_path, [0.0])
    assert left.path is not None
    left.close()
    assert remove_stale_centers() == [left.path]
    assert held.path is not None
    assert held.path.exists()
    held.unlink()
    held.close()


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


def test_snapshot_is_a_copy(tmp_path: Path) -> None:
    center = Center.in_memory(np.float32([1.0, 2.0]), CenterShape(2, 1, 1))
    copy = center.snapshot()
    center.vector[0] = 9.0
    assert copy.tolist() == [1.0, 2.0]
    center.write_snapshot(tmp_path / "pending" / "center.f32")
    assert np.fromfile(tmp_path / "pending" / "center.f32", "<f4").tolist() == [9.0, 2.0]


def test_staleness_counts_exchanges_by_others_since_my_pull() -> None:
    center = Center.in_memory(np.zeros(4, np.float32), CenterShape(4, 3, 1))
    for worker in range(3):
        center.pulled(worker)
    for worker in (1, 1, 2):
        center.end(worker, center.begin(worker), 0)
    ticket = center.begin(0)
    assert ticket.staleness == 3
    center.end(0, ticket, 0)
    center.end(1, center.begin(1), 0)
    assert center.begin(0).staleness == 1


def test_overlaps_count_exchanges_that_were_open_with_mine() -> None:
    center = Center.in_memory(np.zeros(4, np.float32), CenterShape(4, 3, 1))
    mine = center.begin(0)
    before = center.begin(1)
    center.end(1, before, 0)
    center.begin(2)
    assert center.end(0, mine, 0) == 2
    again = center.begin(1)
    assert center.end(1, again, 0) == 1, "worker 2 is still in its exchange"
    center.abandon(2)
    assert center.end(1, center.begin(1), 0) == 0


def test_workers_begin_at_chunks_of_their_own() -> None:
    chunks = Chunks(10, 1, find_strategy("easgd"), StatisticBlobs())
    orders = [list(chunks.order(worker, 3)) for worker in range(3)]
    assert [order[0] for order in orders] == [0, 3, 6]
    assert all(sorted(order) == list(range(10)) for order in orders)


def test_statistics_are_no_part_of_a_push() -> None:
    statistics = StatisticBlobs.from_json([[2, 4, 4, 6, 6]])
    rng = np.random.default_rng(3)
    local, initial = rng.standard_normal((2, 9)).astype(np.float32)
    center = Center.in_memory(initial, CenterShape(9, 2, 3))
    chunks = Chunks(9, 4, find_strategy("easgd"), statistics)
    new_local, push = np.empty_like(local), np.empty(4, np.float32)
    distance = meet_in_memory(
        center, chunks, 0, (0, 1, 2), Terms(2, 0.5), local, new_local, local, push, measure_distance=True
    )
    np.testing.assert_array_equal(center.vector[2:7], initial[2:7])
    assert not np.array_equal(center.vector[:2], initial[:2])
    assert not np.array_equal(center.vector[7:], initial[7:])
    assert distance == pytest.approx(float(np.linalg.norm(local - initial)), rel=1e-6)
