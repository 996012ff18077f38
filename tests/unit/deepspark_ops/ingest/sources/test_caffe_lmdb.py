"""Databases that Caffe's tools made, as sources of new shards."""

import shutil

import lmdb
import numpy as np
import pytest

from deepspark_ops.errors import DataError
from deepspark_ops.ingest.records import RecordError
from deepspark_ops.ingest.sources.caffe_lmdb import index_caffe_lmdb
from tests.paths import FIXTURES

DATA = FIXTURES / "caffe" / "data"


def test_raw_records_give_pixels_and_the_old_number_leaves_the_name():
    index = index_caffe_lmdb(DATA / "lmdb_raw")
    assert index.names == [f"c{i}.png" for i in range(7)]
    assert index.labels.tolist() == [0, 3, 1, 4, 2, 0, 3]
    with index.reader.subset(np.array([6, 1])).opened() as read:
        assert (read(0).shape, read(0).dtype) == ((3, 14, 17), np.uint8)


def test_compressed_records_stay_compressed():
    index = index_caffe_lmdb(DATA / "lmdb_jpg")
    with index.reader.opened() as read:
        assert read(2) == (DATA / "img" / "c2.jpg").read_bytes()


def test_float_records_stay_float():
    with index_caffe_lmdb(DATA / "lmdb_float").reader.opened() as read:
        assert (read(0).shape, read(0).dtype) == ((2, 6, 5), np.float32)


def test_damaged_record_is_rejected(tmp_path):
    with lmdb.open(str(tmp_path / "db"), lock=False) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"00000000_a", b"\x08\x01\x10\x02\x18\x02\x22\x01x\x28\x05")
    index = index_caffe_lmdb(tmp_path / "db")
    assert index.labels.tolist() == [5]
    with index.reader.opened() as read, pytest.raises(RecordError, match="needs 4 values, the record has 1"):
        read(0)


def test_a_record_that_is_no_datum_is_rejected(tmp_path):
    with lmdb.open(str(tmp_path / "db"), lock=False) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"0", b"\x08\x01\x10\xff")
        transaction.put(b"1", b"\x08\x01\x10\x01\x18\x01\x22\x01x\x28\x05")
    index = index_caffe_lmdb(tmp_path / "db")
    assert (index.labels.tolist(), index.names) == ([5], ["1"])
    (rejection,) = index.rejected
    assert (rejection.position, rejection.name) == (0, "0")
    assert rejection.reason.startswith("record b'0': 4 bytes that are no Caffe Datum; ")
    with index.reader.opened() as read:
        assert read(0).tolist() == [[[ord("x")]]]
    with lmdb.open(str(tmp_path / "db"), lock=False) as environment, environment.begin(write=True) as transaction:
        transaction.delete(b"1")
    with pytest.raises(DataError, match=r"db: record b'0': 4 bytes that are no Caffe Datum; is this a database of"):
        index_caffe_lmdb(tmp_path / "db")


def test_database_cut_short_is_a_data_error(tmp_path):
    shutil.copytree(DATA / "lmdb_raw", tmp_path / "db")
    with (tmp_path / "db" / "data.mdb").open("r+b") as handle:
        handle.truncate(12_288)
    with pytest.raises(DataError, match=r"data\.mdb is cut short"):
        index_caffe_lmdb(tmp_path / "db")
