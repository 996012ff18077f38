"""HDF5 shards: Caffe's HDF5Data can read the shards, and the bytes repeat."""

import time

import h5py
import numpy as np
import pytest

from caffe_import.data.hdf5_source import Hdf5Source, read_hdf5_list
from deepspark_ops.shards.files import hdf5_shard
from deepspark_ops.shards.files.hdf5_shard import hdf5_list, write_hdf5_shard
from deepspark_ops.shards.manifest import sha256_of_file

SHAPE = (3, 4, 5)


def samples(n: int):
    rng = np.random.default_rng(4)
    for i in range(n):
        yield rng.integers(0, 256, SHAPE, dtype=np.uint8), i % 7


@pytest.mark.parametrize("n", [1, 9, 10, 11, 25])
def test_plain_h5py_reads_what_was_written(tmp_path, monkeypatch, n):
    monkeypatch.setattr(hdf5_shard, "_BUFFER_BYTES", 10 * 4 * 60)  # ten rows a piece
    assert write_hdf5_shard(tmp_path / "a.h5", samples(n), SHAPE) == n
    with h5py.File(tmp_path / "a.h5") as handle:
        assert sorted(handle) == ["data", "label"]
        assert (handle["data"].dtype, handle["label"].dtype) == (np.float32, np.float32)
        np.testing.assert_array_equal(handle["data"], np.stack([image for image, _ in samples(n)]))
        assert handle["label"][:].tolist() == [i % 7 for i in range(n)]


@pytest.mark.slow
def test_same_samples_give_same_bytes_at_another_time(tmp_path):
    write_hdf5_shard(tmp_path / "a.h5", samples(30), SHAPE)
    time.sleep(1.1)  # HDF5 can stamp objects with the second of their making
    write_hdf5_shard(tmp_path / "b.h5", samples(30), SHAPE)
    assert sha256_of_file(tmp_path / "a.h5") == sha256_of_file(tmp_path / "b.h5")


def test_no_samples_leave_no_file(tmp_path):
    assert write_hdf5_shard(tmp_path / "a.h5", iter(()), SHAPE) == 0
    assert list(tmp_path.iterdir()) == []


def test_list_names_files_that_a_data_layer_finds_from_anywhere(tmp_path):
    files = [tmp_path / "a.h5", tmp_path / "b.h5"]
    for path in files:
        write_hdf5_shard(path, samples(4), SHAPE)
    (tmp_path / "files.txt").write_text(hdf5_list(files))
    source = Hdf5Source(read_hdf5_list(tmp_path / "files.txt", tmp_path / "elsewhere"), ("label", "data"))
    assert (len(source), source.sample_shapes()) == (8, ((), SHAPE))
    assert source.read(2, 4)[0].tolist() == [2, 3, 0, 1]
    source.close()
