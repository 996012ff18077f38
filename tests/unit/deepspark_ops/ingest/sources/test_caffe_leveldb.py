"""LevelDBs of Caffe's tools as sources: the recorded database, a log with records, damaged databases."""

import shutil

import numpy as np
import pytest

from deepspark_ops.errors import DataError
from deepspark_ops.ingest.sources.caffe_leveldb import digest_leveldb, index_leveldb
from deepspark_ops.ingest.sources.caffe_lmdb import index_caffe_lmdb
from deepspark_ops.ingest.sources.registry import detect_format
from tests.paths import FIXTURES
from tests.reference.ingest_in_process import index_records

DATA = FIXTURES / "caffe" / "data"


def test_the_database_that_caffe_wrote_gives_the_same_as_caffes_lmdb_of_these_images():
    index, expected = index_leveldb(DATA / "leveldb_raw"), index_caffe_lmdb(DATA / "lmdb_raw")
    assert index.names == expected.names
    assert index.labels.tolist() == expected.labels.tolist()
    for record, expected_record in zip(index_records(index), index_records(expected), strict=True):
        np.testing.assert_array_equal(record, expected_record)
    indices = np.array([3, 0])
    with index.reader.subset(indices).opened() as read:
        np.testing.assert_array_equal(read(1), index_records(expected)[0])
    assert detect_format(DATA / "leveldb_raw") == "caffe_leveldb"


def test_damage_is_found_and_the_digest_sees_it(tmp_path):
    folder = shutil.copytree(DATA / "leveldb_raw", tmp_path / "db")
    digest = digest_leveldb(folder)
    assert digest == digest_leveldb(DATA / "leveldb_raw")
    for path in [*folder.glob("*.ldb"), *folder.glob("*.sst"), *folder.glob("*.log")]:
        content = bytearray(path.read_bytes())
        if len(content) > 100:
            content[60] ^= 1
            path.write_bytes(content)
    assert digest_leveldb(folder) != digest
    with pytest.raises(DataError, match="does not fit its checksum"):
        index_leveldb(folder)
    (folder / "CURRENT").write_text("MANIFEST-gone\n")
    with pytest.raises(DataError, match="no LevelDB here"):
        digest_leveldb(folder)
