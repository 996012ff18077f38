"""A reader reports a shard that is removed, cut, damaged or replaced; a copy with another time is read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from deepspark_ops.errors import DataError
from deepspark_ops.shards.changed_shards import REMEDY, shard_stamps
from deepspark_ops.shards.reader import Dataset, open_dataset
from tests.unit.deepspark_ops.shards.test_reader import make_split


@pytest.fixture(params=["lmdb", "hdf5"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Dataset:
    split = make_split(tmp_path / "train", request.param)
    dataset = open_dataset(split, stamps=shard_stamps(split))
    assert dataset.read(0, 0, 5)[1].tolist() == [0, 1, 2, 3, 0]  # open when the file changes
    return dataset


def file_of(dataset: Dataset, shard: int) -> Path:
    path = Path(dataset.shards[shard].name)
    return path / "data.mdb" if path.is_dir() else path


def shard_refusal(dataset: Dataset, shard: int) -> str:
    with dataset, pytest.raises(DataError) as raised:
        dataset.read(shard, 0, 1)
    assert str(raised.value).startswith(f"shard {dataset.shards[shard].name}")
    assert str(raised.value).endswith(REMEDY)
    return str(raised.value)


@pytest.mark.parametrize("shard", [0, 1], ids=["open", "unread"])
def test_a_removed_shard(opened: Dataset, shard: int) -> None:
    file_of(opened, shard).unlink()
    assert "No such file or directory" in shard_refusal(opened, shard)


@pytest.mark.parametrize("shard", [0, 1], ids=["open", "unread"])
def test_a_shard_that_is_cut_short_does_not_kill_its_reader(opened: Dataset, shard: int) -> None:
    path = file_of(opened, shard)
    os.truncate(path, path.stat().st_size // 2)
    assert "bytes, the manifest says" in shard_refusal(opened, shard)


@pytest.mark.parametrize("shard", [0, 1], ids=["open", "unread"])
def test_another_byte_in_place(opened: Dataset, shard: int) -> None:
    path = file_of(opened, shard)
    with path.open("r+b") as file:
        file.seek(-100, os.SEEK_END)
        old = file.read(1)
        file.seek(-100, os.SEEK_END)
        file.write(bytes([old[0] ^ 1]))
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 1))  # the kernel's clock may not have moved since it was made
    assert "has changed since the run began: SHA-256 is" in shard_refusal(opened, shard)


def test_another_shard_of_the_same_size_and_count_in_its_place(opened: Dataset) -> None:
    """Shards 2 to 5 have three samples each: nothing but the digest tells them apart."""
    two, three = file_of(opened, 2), file_of(opened, 3)
    assert two.stat().st_size == three.stat().st_size
    shutil.copyfile(three, two)
    os.utime(two, ns=(1, two.stat().st_mtime_ns + 1))
    assert "SHA-256 is" in shard_refusal(opened, 2)


def test_the_same_bytes_with_another_time_are_read_whole_once(opened: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file_of(opened, 1)
    copy = path.with_name("copy")
    shutil.copyfile(path, copy)
    copy.rename(path)
    os.utime(path, ns=(1, 1))
    with opened:
        first = opened.read(1, 0, 4)[1].tolist()
        monkeypatch.setattr("deepspark_ops.shards.changed_shards.sha256_of_file", lambda path: pytest.fail("again"))
        assert opened.read(1, 0, 4)[1].tolist() == first == [1, 2, 3, 0]
