"""Keys of a database as names of images, or as labels."""

import struct

import lmdb
import numpy as np
import pytest

from caffe_import.files.datum import encode_datum
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest.sources.registry import index_source
from tests.reference.ingest_in_process import planned_images
from tests.reference.leveldb_files import VALUE, log_file, write_batch, write_database

N_RECORDS = 600
N_CLASSES = 6
TEST_SHARE = 0.25


def write_lmdb(path, records):
    with lmdb.open(str(path), map_size=2**26, lock=False) as environment, environment.begin(write=True) as transaction:
        for key, value in records:
            transaction.put(key, value)


def write_leveldb(path, records):
    write_database(path, log=log_file(write_batch(1, *((VALUE, key, value) for key, value in records))))


def write_sequence_file(path, records):
    """Write Text keys without the number, as a job keyed by class does, and Datum as BytesWritable."""
    start = b"SEQ\x06" + b"".join(
        bytes([len(name)]) + name for name in (b"org.apache.hadoop.io.Text", b"org.apache.hadoop.io.BytesWritable")
    )
    content = start + b"\0\0" + struct.pack(">i", 0) + bytes(16)
    for key, value in records:
        text = key.partition(b"_")[2]
        key_bytes, value_bytes = bytes([len(text)]) + text, struct.pack(">i", len(value)) + value
        content += struct.pack(">ii", len(key_bytes) + len(value_bytes), len(key_bytes)) + key_bytes + value_bytes
    path.write_bytes(content)


WRITERS = {"caffe_lmdb": write_lmdb, "caffe_leveldb": write_leveldb, "sequence_file": write_sequence_file}


def image(i: int) -> np.ndarray:
    return np.random.default_rng(i).integers(0, 256, (1, 3, 4), dtype=np.uint8)


def keyed_records(name_of, content_of=lambda i: i):
    return [
        (f"{i:08d}_{name_of(i)}".encode(), encode_datum(image(content_of(i)), i % N_CLASSES)) for i in range(N_RECORDS)
    ]


def shares_of_test(plan):
    """Return the share of each class that is tested, (N_CLASSES,)."""
    counts = {split: np.zeros(N_CLASSES) for split in ("train", "test")}
    for task in plan.tasks:
        counts[task.split] += np.bincount(task.labels, minlength=N_CLASSES)
    return counts["test"] / (counts["test"] + counts["train"])


@pytest.mark.parametrize("source_format", WRITERS)
def test_every_class_is_split_where_keys_hold_the_label(tmp_path, source_format):
    WRITERS[source_format](tmp_path / "db", keyed_records(lambda i: i % N_CLASSES))
    shares = shares_of_test(
        planned_images(tmp_path, tmp_path / "db", source_format=source_format, test_fraction=TEST_SHARE)
    )
    # 100 records of each class: five standard deviations are 0.22
    np.testing.assert_allclose(shares, TEST_SHARE, atol=0.22)


@pytest.mark.parametrize("source_format", WRITERS)
def test_names_that_tell_images_apart_are_the_records_names(tmp_path, source_format):
    WRITERS[source_format](tmp_path / "db", keyed_records(lambda i: f"cat/{i}.jpg"))
    index = index_source(
        IngestConfig(source=tmp_path / "db", output=tmp_path), tmp_path / "db", source_format, tmp_path
    )
    assert list(index.names) == [f"cat/{i}.jpg" for i in range(N_RECORDS)]


@pytest.mark.parametrize("source_format", WRITERS)
def test_an_image_that_is_listed_twice_stays_in_one_split(tmp_path, source_format):
    WRITERS[source_format](tmp_path / "db", keyed_records(lambda i: f"cat/{i // 2}.jpg", lambda i: i // 2))
    splits = {}
    for task in planned_images(tmp_path, tmp_path / "db", source_format=source_format, test_fraction=TEST_SHARE).tasks:
        for name in task.names:
            splits.setdefault(name, set()).add(task.split)
    assert len(splits) == N_RECORDS // 2
    assert all(len(splits_of_image) == 1 for splits_of_image in splits.values())


def test_only_the_name_that_several_images_share_becomes_the_whole_key(tmp_path):
    write_lmdb(tmp_path / "db", [(b"00000000_a", encode_datum(image(0), 0)), (b"00000001_b", encode_datum(image(1), 0)),
                                 (b"00000002_b", encode_datum(image(2), 1))])  # fmt: skip
    config = IngestConfig(source=tmp_path / "db", output=tmp_path)
    index = index_source(config, config.source, "caffe_lmdb", tmp_path)
    assert index.names == ["a", "00000001_b", "00000002_b"]
