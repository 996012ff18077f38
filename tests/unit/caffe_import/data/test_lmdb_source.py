"""LMDB sources: positions, wrapping, forks, and every way a database can be damaged."""

import os
import shutil
from pathlib import Path

import lmdb
import numpy as np
import pytest

from caffe_import.data import read_wrapped
from caffe_import.data.lmdb_environment import acquire_environment, release_environment
from caffe_import.data.lmdb_source import LmdbSource
from caffe_import.errors import DataSourceError
from caffe_import.files.datum import encode_datum
from caffe_import.proto import caffe_pb2
from tests.paths import FIXTURES
from tests.reference.open_databases import open_databases

CAFFE = FIXTURES / "caffe"


def write_lmdb(folder: Path, records) -> Path:
    with lmdb.open(str(folder), map_size=2**26, lock=False) as environment, environment.begin(write=True) as txn:
        for key, record in records:
            txn.put(key, record)
    return folder


@pytest.fixture
def numbered(tmp_path):
    """300 records whose one pixel value is position % 256 and whose label is the position."""
    image = np.zeros((1, 2, 3), np.uint8)
    records = [(f"{i:08d}_x".encode(), encode_datum(image + np.uint8(i % 256), i)) for i in range(300)]
    source = LmdbSource(write_lmdb(tmp_path / "db", records))
    yield source
    source.close()


@pytest.mark.parametrize(("start", "count"), [(0, 1), (0, 300), (63, 2), (64, 64), (127, 100), (299, 1)])
def test_read_returns_the_samples_of_the_range(numbered, start, count):
    images, labels = numbered.read(start, count)
    assert images.shape == (count, 1, 2, 3)
    assert images.dtype == np.uint8
    assert labels.tolist() == list(range(start, start + count))
    np.testing.assert_array_equal(images[:, 0, 1, 2], np.arange(start, start + count) % 256)


def test_read_wrapped_goes_round_more_than_once(numbered):
    _, labels = read_wrapped(numbered, 899, 302)
    assert labels.tolist() == [299, *range(300), 0]


@pytest.mark.parametrize(("start", "count"), [(-1, 1), (300, 1), (299, 2), (0, 0)])
def test_range_outside_the_source_is_refused(numbered, start, count):
    with pytest.raises(ValueError, match="asked of a source with 300"):
        numbered.read(start, count)


def test_shapes_and_single_top():
    source = LmdbSource(CAFFE / "data" / "lmdb_raw")
    assert (len(source), source.sample_shapes()) == (7, ((3, 14, 17), ()))
    source.close()
    without_labels = LmdbSource(CAFFE / "data" / "lmdb_raw", with_labels=False)
    assert without_labels.sample_shapes() == ((3, 14, 17),)
    assert len(without_labels.read(0, 2)) == 1
    without_labels.close()


def test_two_sources_of_one_path_live_in_one_process(numbered):
    other = LmdbSource(numbered.folder)
    assert len(numbered) == len(other) == 300
    other.close()
    assert numbered.read(5, 1)[1].tolist() == [5]


def test_source_opened_before_a_fork_reads_in_the_child(numbered):
    assert numbered.read(3, 1)[1].tolist() == [3]
    parents = acquire_environment(numbered.folder)
    child = os.fork()
    if child == 0:
        ok = False
        try:
            fresh = LmdbSource(numbered.folder)
            ok = fresh.read(7, 1)[1].tolist() == [7] and numbered.read(8, 1)[1].tolist() == [8]
            fresh.close()
            # LMDB forbids using an environment that was opened before a fork.
            ok = ok and acquire_environment(numbered.folder) is not parents
            ok = ok and numbered.read(8, 2)[1].tolist() == [8, 9]
        finally:
            os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert numbered.read(9, 1)[1].tolist() == [9]
    release_environment(numbered.folder)


def test_closed_source_reads_again(numbered):
    numbered.read(0, 1)
    numbered.close()
    assert numbered.read(200, 1)[1].tolist() == [200]


def test_nothing_is_written_beside_the_data(tmp_path):
    folder = tmp_path / "db"
    shutil.copytree(CAFFE / "data" / "lmdb_raw", folder)
    source = LmdbSource(folder)
    source.read(0, 7)
    source.close()
    assert [path.name for path in folder.iterdir()] == ["data.mdb"]


def test_missing_database_says_so(tmp_path):
    with pytest.raises(DataSourceError) as caught:
        len(LmdbSource(tmp_path))
    assert str(caught.value) == f"{tmp_path}: no LMDB here (data.mdb is missing)"


def test_empty_database_says_so(tmp_path):
    with pytest.raises(DataSourceError, match="the LMDB has no records"):
        len(LmdbSource(write_lmdb(tmp_path / "db", [])))


def test_file_that_is_no_lmdb_says_so(tmp_path):
    (tmp_path / "data.mdb").write_bytes(b"text" * 5000)
    with pytest.raises(DataSourceError, match=r"not a readable LMDB: .*; the file has 20,000 bytes"):
        len(LmdbSource(tmp_path))


@pytest.mark.parametrize("n_bytes", [8192, 12_288, 16_384])
def test_database_cut_short_is_refused_before_it_is_mapped(tmp_path, n_bytes):
    shutil.copytree(CAFFE / "data" / "lmdb_raw", tmp_path / "db")
    with (tmp_path / "db" / "data.mdb").open("r+b") as handle:
        handle.truncate(n_bytes)
    with pytest.raises(DataSourceError) as caught:
        len(LmdbSource(tmp_path / "db"))
    expected = f"{tmp_path / 'db'}: data.mdb is cut short: {n_bytes:,} bytes, its header says 20,480; copy it again"
    assert str(caught.value) == expected


@pytest.mark.parametrize("shapes", [[(3, 4, 5)] * 3 + [(3, 5, 4)] * 2, [(1, 2, 2), (3, 2, 2), (1, 2, 2), (1, 7, 1)]])
def test_images_of_several_shapes_are_read_with_their_own(tmp_path, shapes):
    rng = np.random.default_rng(3)
    images = [rng.integers(0, 256, shape, dtype=np.uint8) for shape in shapes]
    images.append(rng.normal(0, 1, shapes[0]).astype(np.float32))
    records = [(b"%d" % index, encode_datum(image, index)) for index, image in enumerate(images)]
    source = LmdbSource(write_lmdb(tmp_path / "db", records))
    for start, count in ((0, len(images)), (1, 3), (len(images) - 2, 2)):
        read_images, labels = source.read(start, count)
        assert labels.tolist() == list(range(start, start + count))
        for image, read_image in zip(images[start : start + count], read_images, strict=True):
            assert (read_image.dtype, read_image.shape) == (image.dtype, image.shape)
            np.testing.assert_array_equal(read_image, image)
    wrapped = read_wrapped(source, len(images) - 1, 3)[0]
    for image, read_image in zip([images[-1], *images[:2]], wrapped, strict=True):
        np.testing.assert_array_equal(read_image, image)
    source.close()


def test_damaged_record_names_its_key(tmp_path):
    record = caffe_pb2.Datum(channels=1, height=2, width=2, data=b"1").SerializeToString()
    source = LmdbSource(write_lmdb(tmp_path / "db", [(b"k7", record)]))
    with pytest.raises(DataSourceError, match=r"record b'k7': shape \(1, 2, 2\) needs 4 values, the record has 1"):
        source.read(0, 1)
    source.close()


def test_a_relative_folder_is_given_back_after_the_process_went_elsewhere(numbered, monkeypatch):
    monkeypatch.chdir(numbered.folder.parent)
    source = LmdbSource(Path(numbered.folder.name))
    assert len(source) == 300
    monkeypatch.chdir("/")
    source.close()
    assert open_databases() == []


def test_records_of_all_kinds_are_read_as_protobuf_reads_them(tmp_path):
    """Raw records are read by hand; records of other encodings or with more fields are not."""
    rng = np.random.default_rng(0)

    def datum(at, **fields):
        image = rng.integers(0, 256, (3, 4, 5), dtype=np.uint8)
        message = caffe_pb2.Datum(channels=3, height=4, width=5, data=image.tobytes(), **fields)
        return message, image if at is None else at

    plain = [datum(None, label=label, encoded=False) for label in (0, 1, 1, 300, -1, 2**31 - 1)]
    bare = [datum(None, label=7), datum(None)]  # as convert_cifar_data writes them; without a label
    more = [datum(None, label=2, float_data=[1.0])]  # Caffe looks at the bytes first
    records, images = zip(*plain, *bare, *more, *plain, strict=True)
    source = LmdbSource(
        write_lmdb(tmp_path / "db", [(b"%08d" % at, datum.SerializeToString()) for at, datum in enumerate(records)])
    )
    for start, count in ((0, len(records)), (6, 5), (1, 3)):
        arrays, labels = source.read(start, count)
        np.testing.assert_array_equal(arrays, np.stack(images[start : start + count]))
        assert labels.tolist() == [datum.label for datum in records[start : start + count]]
    source.close()


@pytest.mark.parametrize("bytes_lost", [1, 3, 40])
def test_a_short_record_among_whole_ones_is_damaged(tmp_path, bytes_lost):
    record = encode_datum(np.zeros((3, 4, 5), np.uint8), 1)
    source = LmdbSource(write_lmdb(tmp_path / "db", [(b"a", record), (b"b", record), (b"c", record[:-bytes_lost])]))
    expected = caffe_pb2.Datum()
    try:
        expected.ParseFromString(record[:-bytes_lost])
    except Exception:  # noqa: BLE001 - protobuf's own
        with pytest.raises(DataSourceError, match="no Caffe Datum"):
            source.read(0, 3)
    else:
        assert source.read(0, 3)[1].tolist() == [1, 1, expected.label]
    source.close()
