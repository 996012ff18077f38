"""HDF5 files and Caffe's lists of such files: the files of Caffe's tests, and files made by h5py."""

from functools import partial

import h5py
import numpy as np
import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.records import RecordError
from deepspark_ops.ingest.sources.registry import detect_format
from deepspark_ops.shards.reader import open_dataset
from tests.paths import FIXTURES
from tests.reference.ingest_in_process import index_of, ingest, source_digest_of

index_hdf5 = partial(index_of, "hdf5")
digest_hdf5 = partial(source_digest_of, "hdf5")

DATA = FIXTURES / "caffe" / "data"


def write_hdf5(path, **datasets):
    with h5py.File(path, "w") as handle:
        for name, values in datasets.items():
            handle[name] = values
    return path


def rows(index):
    with index.reader.opened() as read:
        return np.stack([read(i) for i in range(len(index.names))])


def test_the_list_that_caffe_reads_gives_all_rows_of_both_files():
    index = index_hdf5(DATA / "hdf5_list.txt")  # its lines start from a folder above, as Caffe's do
    with h5py.File(DATA / "hdf5_a.h5") as a, h5py.File(DATA / "hdf5_b.h5") as b:
        np.testing.assert_array_equal(rows(index)[:, 0], np.concatenate([a["data"], b["data"]]))
        assert index.labels.tolist() == np.concatenate([a["label"], b["label"]]).astype(int).tolist()
    assert index.names[4:6] == ["hdf5_a_4", "hdf5_b_0"]
    assert detect_format(DATA / "hdf5_list.txt") == detect_format(DATA / "hdf5_a.h5") == "hdf5"


@pytest.mark.parametrize(
    ("shape", "dtype", "image_shape", "stored"),
    [
        ((6, 3, 4, 5), np.uint8, (3, 4, 5), np.uint8),
        ((6, 4, 5), np.float64, (1, 4, 5), np.float32),
        ((6, 7), np.int16, (7, 1, 1), np.float32),
    ],
)
def test_shapes_and_types(tmp_path, shape, dtype, image_shape, stored):
    data = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    path = write_hdf5(tmp_path / "a.h5", data=data, label=np.arange(6).reshape(6, 1))
    index = index_hdf5(path)
    with index.reader.subset(np.array([5, 2])).subset(np.array([1])).opened() as read:
        assert (read(0).shape, read(0).dtype) == (image_shape, stored)
        np.testing.assert_array_equal(read(0).ravel(), data[2].ravel().astype(stored))
    assert index.labels.tolist() == list(range(6))


def test_columns_have_usual_names_or_are_named(tmp_path):
    path = write_hdf5(tmp_path / "a.h5", images=np.zeros((2, 1, 1)), y=[0, 1], second=[1, 1], scores=np.ones((2, 3)))
    assert index_hdf5(path).labels.tolist() == [0, 1]
    assert index_hdf5(path, label_column="second").labels.tolist() == [1, 1]
    with pytest.raises(ConfigError) as caught:
        index_hdf5(path, image_column="pixels")
    assert str(caught.value) == (
        f'{path}: no data set "pixels"; there are: images (2, 1, 1), scores (2, 3), second (2,), y (2,);'
        " name one with image_column"
    )
    with pytest.raises(ConfigError, match=r'"scores" has shape \(2, 3\) for 2 rows of data; ingestion takes one class'):
        index_hdf5(path, label_column="scores")


@pytest.mark.parametrize(
    ("datasets", "message"),
    [
        ({"data": np.zeros((2, 1)), "label": [0.0, 0.5]}, "holds 0.5 in row 1, which is no class number"),
        (
            {"data": np.zeros((2, 1)), "label": [b"cat", b"dog"]},
            '"label" holds texts; ingestion takes one class number',
        ),
        ({"data": np.zeros((2, 1)), "label": [0.0, 1e300]}, "holds 1e[+]300 in row 1, which is no class number"),
        ({"data": np.zeros((2, 1)), "label": [0.0, -np.inf]}, "holds -inf in row 1, which is no class number"),
        ({"data": np.zeros((2, 1)), "label": [np.nan, 1]}, "holds nan in row 0"),
        ({"data": np.zeros((2, 1)), "label": [0, 1, 2]}, r"has shape \(3,\) for 2 rows"),
        ({"data": np.zeros(2), "label": [0, 1]}, r"has shape \(2,\); allowed: \(n, channels, height, width\)"),
        ({"label": [0]}, r"no data set of a usual name \(data, images,"),
    ],
)
def test_what_is_no_classification_is_refused(tmp_path, datasets, message):
    with pytest.raises(ConfigError, match=message):
        index_hdf5(write_hdf5(tmp_path / "a.h5", **datasets))


def test_missing_damaged_and_different_files_are_named(tmp_path):
    (tmp_path / "list.txt").write_text("a.h5\nb.h5\n")
    write_hdf5(tmp_path / "a.h5", data=np.zeros((2, 3)), label=[0, 1])
    with pytest.raises(DataError, match=r"b\.h5: no such file"):
        index_hdf5(tmp_path / "list.txt")
    write_hdf5(tmp_path / "b.h5", data=np.zeros((2, 4)), label=[0, 1])
    with pytest.raises(DataError, match=r"differ in name or shape \(a\.h5: data \(3,\); b\.h5: data \(4,\)\)"):
        index_hdf5(tmp_path / "list.txt")
    (tmp_path / "b.h5").write_bytes((tmp_path / "a.h5").read_bytes()[:600])
    with pytest.raises(DataError, match=r"b\.h5: not a readable HDF5 file"):
        index_hdf5(tmp_path / "list.txt")


def test_a_name_that_no_file_can_have_is_named_with_the_list(tmp_path):
    (tmp_path / "list.txt").write_text("a" * 300)
    with pytest.raises(DataError, match=r"list\.txt: the list names '.*a{300}': File name too long"):
        index_hdf5(tmp_path / "list.txt")


def test_digest_is_of_the_files_wherever_the_list_is(tmp_path):
    write_hdf5(tmp_path / "a.h5", data=np.zeros((2, 3)), label=[0, 1])
    (tmp_path / "list.txt").write_text("a.h5\n")
    digest = digest_hdf5(tmp_path / "list.txt")
    assert digest == digest_hdf5(tmp_path / "list.txt", root_folder=tmp_path)
    write_hdf5(tmp_path / "a.h5", data=np.zeros((2, 3)), label=[1, 1])
    assert digest_hdf5(tmp_path / "list.txt") != digest


def test_float_rows_go_into_shards_as_they_are(tmp_path):
    data = np.random.default_rng(1).normal(size=(9, 5)).astype(np.float32)
    path = write_hdf5(tmp_path / "a.h5", data=data, label=np.arange(9) % 3)
    ingest(IngestConfig(source=path, output=tmp_path / "out", test_fraction=0, shuffle=False), tmp_path / "work")
    with open_dataset(tmp_path / "out" / "train") as dataset:
        stored, labels = dataset.read(0, 0, 9)
    np.testing.assert_array_equal(stored.reshape(9, 5), data)
    assert labels.tolist() == [0, 1, 2] * 3


def test_a_number_that_no_float32_holds_is_refused_with_its_row(tmp_path):
    data = np.array([[1e38, np.inf], [1e39, 0.0]])
    index = index_hdf5(write_hdf5(tmp_path / "a.h5", data=data, label=[0, 1]))
    with index.reader.opened() as read:
        np.testing.assert_array_equal(read(0).ravel(), np.float32([1e38, np.inf]))
        with pytest.raises(RecordError, match=r"a\.h5: row 1 of 'data' has a number that no float32 holds"):
            read(1)


def test_any_blank_separates_the_files_of_a_list(tmp_path):
    (tmp_path / "list.txt").write_text(f"{DATA / 'hdf5_a.h5'} {DATA / 'hdf5_b.h5'}\n")
    index = index_hdf5(tmp_path / "list.txt")
    assert index.labels.tolist() == index_hdf5(DATA / "hdf5_list.txt").labels.tolist()
    assert digest_hdf5(tmp_path / "list.txt") == digest_hdf5(DATA / "hdf5_list.txt")
