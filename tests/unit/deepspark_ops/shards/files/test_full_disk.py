"""Shards on a full disk: a real disk of 2 MiB, mounted for the test if allowed."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

from deepspark_ops.errors import DataError
from deepspark_ops.shards.files import full_disk
from deepspark_ops.shards.files.full_disk import is_no_room, write_trouble
from deepspark_ops.shards.files.hdf5_shard import write_hdf5_columns, write_hdf5_shard
from deepspark_ops.shards.files.lmdb_shard import write_lmdb_shard


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system may not be mounted here; root may")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_lmdb_on_a_full_disk_says_so_and_leaves_nothing(small_disk: Path) -> None:
    records = ((b"%08d" % number, os.urandom(1000)) for number in range(10_000))
    with pytest.raises(
        DataError, match=r"disk/train: the disk is full, [\d,.]+ (MiB|KiB|B) are free; make room there, or give"
    ):
        write_lmdb_shard(small_disk / "train", records)
    assert list(small_disk.iterdir()) == []
    (small_disk / "others").write_bytes(bytes(2**21 - 2**13))  # no room for a first page
    with pytest.raises(DataError, match="disk/train: the disk is full"):
        write_lmdb_shard(small_disk / "train", ((b"%08d" % number, b"") for number in range(10)))


def test_hdf5_on_a_full_disk_says_so_and_leaves_nothing(small_disk: Path) -> None:
    data = np.random.default_rng(0).random((2_000_000,), np.float32)
    with pytest.raises(OSError, match="No space left") as caught:
        write_hdf5_columns(small_disk / "a.h5", {"data": data})
    assert is_no_room(caught.value)
    images = ((np.full((3, 32, 32), number % 256, np.uint8), 1) for number in range(1000))
    with pytest.raises(OSError, match="No space left"):
        write_hdf5_shard(small_disk / "b.h5", images, (3, 32, 32))
    assert "a.h5: the disk is full" in write_trouble(small_disk / "a.h5", caught.value)
    assert list(small_disk.iterdir()) == []


def test_a_disk_that_has_room_again_may_have_been_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = OSError(errno.EIO, "Input/output error")
    monkeypatch.setattr(full_disk, "_free_bytes", lambda folder: 2**30)
    text = write_trouble(tmp_path / "not" / "there", error)
    assert "cannot write the shard: [Errno 5] Input/output error; a disk that is full or damaged answers so" in text
    monkeypatch.setattr(full_disk, "_free_bytes", lambda folder: 2**20)
    assert "the disk is full, 1.0 MiB are free; make room" in write_trouble(tmp_path / "a", error)
    assert not is_no_room(error)


def test_the_bytes_are_those_that_hdf5_writes_by_itself(tmp_path: Path) -> None:
    data = np.arange(3_000_000, dtype=np.float32).reshape(-1, 3)
    write_hdf5_columns(tmp_path / "a.h5", {"data": data})
    with h5py.File(tmp_path / "b.h5", "w", track_order=False) as handle:
        rows = (512 * 1024) // 12
        handle.create_dataset("data", data=data, chunks=(rows, 3), track_times=False)
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()
