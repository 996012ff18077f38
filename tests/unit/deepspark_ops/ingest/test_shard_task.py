"""A task: written, counted and rejected records, and a user's mistake as a value."""

import cv2
import h5py
import lmdb
import numpy as np
import pytest

from caffe_import.files.datum import decode_datum
from caffe_import.proto import caffe_pb2
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest import shard_task
from deepspark_ops.ingest.image_plan import plan_images
from deepspark_ops.ingest.recipe import make_recipe
from deepspark_ops.ingest.shard_task import run_shard_task
from deepspark_ops.shards.files.shard_records import read_records, records_path
from tests.reference.lmdb_files import lmdb_records
from tests.reference.raw_sources import image_bgr, write_images


def task_of(tmp_path, n=10, **options):
    source = tmp_path / "raw" / "list.txt"
    if not source.exists() and "source" not in options:
        write_images(tmp_path / "raw", n)
    fields = {"source": source, "output": tmp_path / "out", "test_fraction": 0, "shuffle": False, **options}
    config = IngestConfig(**fields)
    (task,) = plan_images(config, make_recipe(config), tmp_path).tasks
    return task


def test_lmdb_holds_what_convert_imageset_would_store(tmp_path):
    task = task_of(tmp_path)
    result = run_shard_task(task)
    records = lmdb_records(task.path)
    assert (result.error, result.n_samples, result.rejected) == (None, 10, [])
    assert list(records) == [f"0000000{i}_img/{i}.png".encode() for i in range(10)]
    for i, record in enumerate(records.values()):
        image, label = decode_datum(record)
        assert label == i % 3
        np.testing.assert_array_equal(image, image_bgr(i).transpose(2, 0, 1))
    assert result.label_counts.tolist() == [4, 3, 3]
    expected = np.sum([image_bgr(i).transpose(2, 0, 1).astype(np.int64) for i in range(10)], axis=0)
    np.testing.assert_array_equal(read_records(records_path(task.path)).sums, expected)


def test_encoded_shard_keeps_the_files(tmp_path):
    task = task_of(tmp_path, encoded=True)
    run_shard_task(task)
    for i, record in enumerate(lmdb_records(task.path).values()):
        datum = caffe_pb2.Datum.FromString(record)
        assert datum.encoded
        assert datum.data == (tmp_path / "raw" / "img" / f"{i}.png").read_bytes()
    assert read_records(records_path(task.path)).sums.sum() == sum(int(image_bgr(i).sum()) for i in range(10))


@pytest.mark.parametrize("encoded", [False, True])
def test_database_of_raw_and_compressed_records_keeps_its_order(tmp_path, encoded):
    (tmp_path / "raw").mkdir()
    with lmdb.open(str(tmp_path / "raw" / "db"), map_size=2**24) as environment, environment.begin(write=True) as batch:
        for i in range(100):
            pixels = image_bgr(i % 11).transpose(2, 0, 1)
            datum = caffe_pb2.Datum(channels=3, height=8, width=8, data=pixels.tobytes(), label=i % 5)
            if i % 3:
                content = cv2.imencode(".png", image_bgr(i % 11))[1].tobytes()
                datum = caffe_pb2.Datum(data=content, label=i % 5, encoded=True)
            batch.put(b"%08d_x" % i, datum.SerializeToString())
    task = task_of(tmp_path, source=tmp_path / "raw" / "db", encoded=encoded)
    run_shard_task(task)
    decoded = [decode_datum(record) for record in lmdb_records(task.path).values()]
    assert [label for _, label in decoded] == [i % 5 for i in range(100)]
    expected = np.stack([image_bgr(i % 11).transpose(2, 0, 1) for i in range(100)])
    np.testing.assert_array_equal(np.stack([image for image, _ in decoded]), expected)
    np.testing.assert_array_equal(read_records(records_path(task.path)).sums, expected.sum(axis=0, dtype=np.int64))


def test_hdf5_shard_holds_the_same_pixels(tmp_path):
    task = task_of(tmp_path, shard_format="hdf5")
    run_shard_task(task)
    with h5py.File(task.path) as handle:
        np.testing.assert_array_equal(handle["data"][3], image_bgr(3).transpose(2, 0, 1))
        assert handle["label"][:].tolist() == [i % 3 for i in range(10)]


def test_bad_records_are_left_out_and_named(tmp_path):
    write_images(tmp_path / "raw", 10)
    images = tmp_path / "raw" / "img"
    (images / "1.png").unlink()
    (images / "4.png").write_bytes((images / "4.png").read_bytes()[:100])
    cv2.imwrite(str(images / "7.png"), image_bgr(7, (9, 8)))
    task = task_of(tmp_path)
    result = run_shard_task(task)
    assert (result.n_samples, result.error, result.label_counts.tolist()) == (7, None, [4, 0, 3])
    assert [(item.position, item.name, item.label) for item in result.rejected] == [
        (1, "img/1.png", 1),
        (4, "img/4.png", 1),
        (7, "img/7.png", 1),
    ]
    reasons = [item.reason for item in result.rejected]
    assert reasons[0] == f"No such file or directory: {images}/1.png"
    assert reasons[1] == "100 bytes that are no image OpenCV can read (JPEG, PNG, BMP, ...)"
    assert reasons[2] == (
        "shape (3, 9, 8) (channels, height, width), the first record has (3, 8, 8);"
        " set resize_height and resize_width, or gray"
    )
    assert [key[:8] for key in lmdb_records(task.path)] == [b"%08d" % i for i in (0, 2, 3, 5, 6, 8, 9)]


def test_task_without_a_usable_record_writes_nothing(tmp_path):
    task = task_of(tmp_path)
    for path in (tmp_path / "raw" / "img").iterdir():
        path.unlink()
    result = run_shard_task(task)
    assert (result.n_samples, len(result.rejected), result.error, task.path.exists()) == (0, 10, None, False)


@pytest.mark.parametrize("shard_format", ["lmdb", "hdf5"])
def test_folder_that_cannot_be_written_comes_back_as_an_error(tmp_path, shard_format):
    task = task_of(tmp_path, shard_format=shard_format)
    (tmp_path / "out").write_text("a file, no folder")
    error = run_shard_task(task).error
    assert error is not None
    assert str(tmp_path / "out") in error
    assert "\n" not in error


def test_full_disk_comes_back_as_an_error(tmp_path, monkeypatch):
    def no_space(*_):
        raise OSError(28, "No space left on device", "/data/shard")

    monkeypatch.setattr(shard_task, "write_lmdb_blocks", no_space)
    error = run_shard_task(task_of(tmp_path)).error
    assert error is not None
    assert "the disk is full" in error
    assert "\n" not in error
