"""LevelDB sources: the database Caffe wrote, damaged copies of it, and hand-made logs and tables."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from caffe_import.data.leveldb_source import LeveldbSource
from caffe_import.data.lmdb_source import LmdbSource
from caffe_import.errors import DataSourceError
from caffe_import.files.datum import encode_datum
from tests.paths import FIXTURES
from tests.reference.leveldb_files import DELETION, VALUE, log_file, table_file, write_batch, write_database

CAFFE = FIXTURES / "caffe"


def datum(label: int) -> bytes:
    return encode_datum(np.full((1, 2, 2), label, np.uint8), label)


def labels_of(folder: Path) -> list[int]:
    source = LeveldbSource(folder)
    _, labels = source.read(0, len(source))
    source.close()
    return labels.tolist()


def test_leveldb_and_lmdb_of_the_same_images_agree():
    level, lm = LeveldbSource(CAFFE / "data" / "leveldb_raw"), LmdbSource(CAFFE / "data" / "lmdb_raw")
    assert (len(level), level.sample_shapes()) == (len(lm), lm.sample_shapes())
    for of_leveldb, of_lmdb in zip(level.read(0, 7), lm.read(0, 7), strict=True):
        np.testing.assert_array_equal(of_leveldb, of_lmdb)
    np.testing.assert_array_equal(level.read(5, 2)[0], lm.read(5, 2)[0])
    level.close()
    lm.close()


@pytest.mark.parametrize("snappy", [False, True])
def test_table_blocks_are_read_plain_and_compressed(tmp_path, snappy):
    entries = [(f"{i:08d}_x".encode(), i + 1, VALUE, datum(i)) for i in range(50)]
    folder = write_database(tmp_path / "db", tables=[(7, table_file(entries, snappy=snappy))])
    assert labels_of(folder) == list(range(50))


def test_log_larger_than_a_block_is_read(tmp_path):
    big = encode_datum(np.zeros((3, 120, 120), np.uint8), 5)
    assert len(big) > 32_768
    log = log_file(write_batch(1, (VALUE, b"a", big), (VALUE, b"b", big)), write_batch(3, (VALUE, b"c", big)))
    assert labels_of(write_database(tmp_path / "db", log=log)) == [5, 5, 5]


@pytest.mark.parametrize("n_free", range(1, 10))
def test_record_that_leaves_no_room_for_a_header_is_followed_by_padding(tmp_path, n_free):
    overhead = len(log_file(write_batch(1, (VALUE, b"a", b"x" * 20_000)))) - 20_000
    filler = b"x" * (32_768 - overhead - n_free)
    first = write_batch(1, (VALUE, b"a", filler))
    log = log_file(first, write_batch(2, (DELETION, b"a", b""), (VALUE, b"b", datum(8))))
    assert len(log_file(first)) == 32_768 - n_free
    assert labels_of(write_database(tmp_path / "db", log=log)) == [8]


def test_newest_write_of_a_key_counts_and_a_deletion_hides(tmp_path):
    table = table_file(
        [(b"a", 1, VALUE, datum(1)), (b"b", 2, VALUE, datum(2)), (b"c", 3, VALUE, datum(3))], snappy=False
    )
    newer = table_file([(b"b", 9, VALUE, datum(9))], snappy=False)
    log = log_file(write_batch(10, (DELETION, b"a", b""), (VALUE, b"d", datum(4))))
    assert labels_of(write_database(tmp_path / "db", tables=[(5, newer), (6, table)], log=log)) == [9, 3, 4]


def test_deleted_table_and_old_log_do_not_count(tmp_path):
    tables = [
        (5, table_file([(b"a", 1, VALUE, datum(1))], snappy=False)),
        (6, table_file([(b"b", 2, VALUE, datum(2))], snappy=False)),
    ]
    assert labels_of(write_database(tmp_path / "db", tables=tables, deleted=[5])) == [2]


def test_images_of_several_shapes_are_read_with_their_own(tmp_path):
    images = [np.full(shape, index, np.uint8) for index, shape in enumerate([(1, 2, 3), (1, 3, 2), (1, 2, 3)])]
    entries = [(b"%d" % index, encode_datum(image, index)) for index, image in enumerate(images)]
    rows = [(key, sequence, VALUE, record) for sequence, (key, record) in enumerate(entries, start=1)]
    read_images, labels = LeveldbSource(
        write_database(tmp_path / "db", tables=[(7, table_file(rows, snappy=False))])
    ).read(0, 3)
    assert [image.tolist() for image in read_images] == [image.tolist() for image in images]
    assert labels.tolist() == [0, 1, 2]


@pytest.mark.parametrize("keep", [0, 10, 100, 3000, 5330])
def test_table_cut_short_is_refused(tmp_path, keep):
    shutil.copytree(CAFFE / "data" / "leveldb_raw", tmp_path / "db")
    table = tmp_path / "db" / "000005.ldb"
    table.write_bytes(table.read_bytes()[:keep])
    with pytest.raises(DataSourceError, match=r"000005\.ldb: (not a LevelDB table, or cut short|.*missing or empty)"):
        len(LeveldbSource(tmp_path / "db"))


def test_flipped_bit_in_a_block_names_file_and_place(tmp_path):
    shutil.copytree(CAFFE / "data" / "leveldb_raw", tmp_path / "db")
    flip(tmp_path / "db" / "000005.ldb", 1500)
    with pytest.raises(DataSourceError, match=r"/000005\.ldb: the block at byte 0 \([\d,]+ bytes\) does not fit"):
        len(LeveldbSource(tmp_path / "db"))


def test_damage_anywhere_in_a_table_is_an_error_or_changes_nothing(tmp_path):
    shutil.copytree(CAFFE / "data" / "leveldb_raw", tmp_path / "db")
    table = tmp_path / "db" / "000005.ldb"
    content = table.read_bytes()
    images, labels = LeveldbSource(tmp_path / "db").read(0, 7)
    survived = 0
    for offset in np.random.default_rng(0).integers(0, len(content), 60):
        table.write_bytes(content)
        flip(table, offset)
        source = LeveldbSource(tmp_path / "db")
        try:
            records = source.read(0, len(source))
        except DataSourceError:
            continue
        finally:
            source.close()
        survived += 1
        assert np.array_equal(records[0], images)
        assert np.array_equal(records[1], labels)
    assert survived < 12  # hits in parts that nobody reads: the filter's index, the footer's padding


@pytest.mark.parametrize("offset", [3, 5, 6, 20, 32_768, 32_780])
def test_flipped_bit_in_a_log_is_refused(tmp_path, offset):
    log = log_file(write_batch(1, (VALUE, b"a", datum(1) + bytes(40_000)), (VALUE, b"b", datum(2))))
    folder = write_database(tmp_path / "db", log=log)
    flip(folder / "000100.log", offset)
    with pytest.raises(DataSourceError, match=r"000100\.log: the log's record at byte (0|32,768) is cut short or"):
        len(LeveldbSource(folder))


@pytest.mark.parametrize("keep", [1, 8, 32_768, 32_770, 32_780])
def test_log_that_was_cut_short_is_refused(tmp_path, keep):
    log = log_file(write_batch(1, (VALUE, b"a", bytes(40_000))))
    folder = write_database(tmp_path / "db", log=log[:keep])
    with pytest.raises(DataSourceError, match=r"000100\.log: the log('s record| ends inside the record) at byte"):
        len(LeveldbSource(folder))


def test_fragment_without_its_beginning_is_refused(tmp_path):
    log = log_file(write_batch(1, (VALUE, b"a", bytes(40_000))))
    folder = write_database(tmp_path / "db", log=bytes(32_768) + log[32_768:])
    with pytest.raises(DataSourceError, match=r"000100\.log: the log's fragment at byte 32,768 does not continue"):
        len(LeveldbSource(folder))


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x10
    path.write_bytes(content)


def test_folder_without_leveldb_says_so(tmp_path):
    with pytest.raises(DataSourceError, match=f"{tmp_path}: no LevelDB here"):
        len(LeveldbSource(tmp_path))


def test_empty_database_says_so(tmp_path):
    with pytest.raises(DataSourceError, match="the LevelDB has no records"):
        len(LeveldbSource(write_database(tmp_path / "db")))
