"""LMDB shards: Caffe can read the shards, the bytes repeat, nothing half-written stays."""

import lmdb
import numpy as np
import pytest

from caffe_import.files.datum import encode_datum
from caffe_import.proto import caffe_pb2
from deepspark_ops.errors import DataError
from deepspark_ops.shards.files import lmdb_shard
from deepspark_ops.shards.files.lmdb_shard import sample_key, write_lmdb_shard
from deepspark_ops.shards.manifest import sha256_of_file


def random_records(n: int, shape=(3, 8, 8)):
    rng = np.random.default_rng(4)
    for i in range(n):
        yield sample_key(i, f"dir/{i}.jpg"), encode_datum(rng.integers(0, 256, shape, dtype=np.uint8), i % 7)


def test_plain_lmdb_and_datum_read_what_was_written(tmp_path):
    assert write_lmdb_shard(tmp_path / "a.lmdb", random_records(120)) == 120
    with lmdb.open(str(tmp_path / "a.lmdb"), readonly=True, lock=False) as environment:
        with environment.begin() as transaction:
            entries = [(key, caffe_pb2.Datum.FromString(value)) for key, value in transaction.cursor()]
    assert [key for key, _ in entries] == sorted(key for key, _ in entries)
    assert entries[7][0] == b"00000007_dir/7.jpg"
    for i, (key, expected) in enumerate(random_records(120)):
        assert entries[i] == (key, caffe_pb2.Datum.FromString(expected))
    datum = entries[3][1]
    assert (datum.channels, datum.height, datum.width, datum.label, datum.encoded) == (3, 8, 8, 3, False)


@pytest.mark.parametrize("commit_bytes", [10_000, 2**26])
def test_same_records_give_same_bytes(tmp_path, monkeypatch, commit_bytes):
    monkeypatch.setattr(lmdb_shard, "_COMMIT_BYTES", commit_bytes)
    for name in "ab":
        write_lmdb_shard(tmp_path / f"{name}.lmdb", random_records(300, (3, 40, 40)))
    digests = [sha256_of_file(tmp_path / f"{name}.lmdb" / "data.mdb") for name in "ab"]
    assert digests[0] == digests[1]


def test_shard_is_one_file_without_lock_and_leaves_no_temporary(tmp_path):
    write_lmdb_shard(tmp_path / "a.lmdb", random_records(3))
    assert [path.name for path in tmp_path.iterdir()] == ["a.lmdb"]
    assert [path.name for path in (tmp_path / "a.lmdb").iterdir()] == ["data.mdb"]
    assert (tmp_path / "a.lmdb" / "data.mdb").stat().st_mode & 0o777 == 0o644


def test_no_records_leave_no_shard_not_even_an_old_one(tmp_path):
    write_lmdb_shard(tmp_path / "a.lmdb", random_records(3))
    assert write_lmdb_shard(tmp_path / "a.lmdb", iter(())) == 0
    assert list(tmp_path.iterdir()) == []


def test_failure_keeps_the_old_shard(tmp_path):
    write_lmdb_shard(tmp_path / "a.lmdb", random_records(3))
    old_digest = sha256_of_file(tmp_path / "a.lmdb" / "data.mdb")

    def failing():
        yield from random_records(1)
        message = "source broke"
        raise DataError(message)

    with pytest.raises(DataError, match="source broke"):
        write_lmdb_shard(tmp_path / "a.lmdb", failing())
    assert [path.name for path in tmp_path.iterdir()] == ["a.lmdb"]
    assert sha256_of_file(tmp_path / "a.lmdb" / "data.mdb") == old_digest


def test_keys_out_of_order_are_refused(tmp_path):
    for second in (b"1", b"2"):
        with pytest.raises(ValueError, match=f"key {second!r} is not above the one before"):
            write_lmdb_shard(tmp_path / "a.lmdb", [(b"2", b"x"), (second, b"x"), (b"3", b"x")])
    assert list(tmp_path.iterdir()) == []


def test_shard_that_grows_too_large_says_what_to_lower(tmp_path, monkeypatch):
    monkeypatch.setattr(lmdb_shard, "MAX_SHARD_BYTES", 64 * 4096)
    with pytest.raises(DataError, match=r"the shard reaches 256.0 KiB at sample \d+; lower samples_per_shard"):
        write_lmdb_shard(tmp_path / "a.lmdb", random_records(100, (3, 50, 50)))
    assert list(tmp_path.iterdir()) == []


def test_long_names_fit_into_a_key():
    key = sample_key(5, "x" * 600 + "é.jpg")
    assert len(key) == 511
    assert key.startswith(b"00000005_x")
    assert key.endswith("é.jpg".encode())


@pytest.mark.parametrize("together", [1, 7, 64, 300])
def test_blocks_of_any_size_give_the_same_bytes(tmp_path, monkeypatch, together):
    monkeypatch.setattr(lmdb_shard, "_COMMIT_BYTES", 40_000)  # within blocks, and at their ends
    records = list(random_records(300, (3, 40, 40)))
    write_lmdb_shard(tmp_path / "one.lmdb", records)
    blocks = [records[start : start + together] for start in range(0, 300, together)]
    assert lmdb_shard.write_lmdb_blocks(tmp_path / "blocks.lmdb", blocks) == 300
    unblocked, blocked = ((tmp_path / f"{name}.lmdb" / "data.mdb").read_bytes() for name in ("one", "blocks"))
    assert unblocked == blocked
