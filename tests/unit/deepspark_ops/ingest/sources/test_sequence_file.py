"""SequenceFiles that Hadoop and Spark wrote (tests/fixtures/sequence_file), in every layout and compression."""

import shutil
from functools import partial

import cv2
import numpy as np
import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.records import RecordError
from deepspark_ops.ingest.sources.registry import detect_format, find_format
from deepspark_ops.ingest.sources.sequence_file import FORMAT
from tests.paths import FIXTURES
from tests.reference.ingest_in_process import index_of, index_records

index_sequence_file = partial(index_of, "sequence_file")

DATA = FIXTURES / "sequence_file"


def planes(k: int) -> np.ndarray:
    return np.random.default_rng(k).integers(0, 256, (4, 5, 3), dtype=np.uint8).transpose(2, 0, 1)


def pixels(record) -> np.ndarray:
    if isinstance(record, bytes):
        return cv2.imdecode(np.frombuffer(record, np.uint8), cv2.IMREAD_COLOR).transpose(2, 0, 1)
    return np.array(record)


@pytest.mark.parametrize("name", ["none", "record", "block", "gzip", "bzip2"])
def test_datum_records_in_every_compression(name):
    source = DATA / f"datum_{name}.seq"
    index = index_sequence_file(source)
    assert (index.names, index.labels.tolist()) == ([f"n0{k}.png" for k in range(5)], [0, 1, 2, 0, 1])
    for k, record in enumerate(index_records(index)):
        np.testing.assert_array_equal(pixels(record), planes(k))
    with index.reader.subset(np.array([4, 1])).subset(np.array([1, 0])).opened() as read:
        np.testing.assert_array_equal(pixels(read(1)), planes(4))
        np.testing.assert_array_equal(pixels(read(0)), planes(1))
    assert detect_format(source) == "sequence_file"


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("caffeonspark_files", ["n00.png", "n01.png", "n02.png"]),
        ("caffeonspark_lmdb", ["00000000", "00000001", "00000002"]),
    ],
)
def test_caffeonsparks_layouts(name, names):
    index = index_sequence_file(DATA / f"{name}.seq")
    assert (index.names, index.labels.tolist(), index.rejected) == (names, [0, 1, 2], ())
    for k, record in enumerate(index_records(index)):
        np.testing.assert_array_equal(pixels(record), planes(k))


def test_deepsparks_layout_is_floats_of_a_square():
    index = index_sequence_file(DATA / "deepspark.seq")
    assert index.labels.tolist() == [0, 1, 2]
    for k, image in enumerate(map(pixels, index_records(index))):
        assert image.dtype == np.float32
        np.testing.assert_array_equal(image, np.random.default_rng(k).integers(0, 256, (3, 4, 4)))


def test_the_folder_that_spark_writes():
    index = index_sequence_file(DATA / "by_spark")
    assert (index.names, index.labels.tolist()) == ([f"n0{k}.png" for k in range(4)], [0, 1, 2, 0])
    np.testing.assert_array_equal(pixels(index_records(index)[3]), planes(3))
    assert detect_format(DATA / "by_spark") == "sequence_file"


def test_other_keys_and_values_are_refused():
    with pytest.raises(
        ConfigError, match="keys are IntWritable, values Text; allowed: BytesWritable with BytesWritable"
    ):
        index_sequence_file(DATA / "texts")


def test_damage_is_found(tmp_path):
    content = (DATA / "datum_none.seq").read_bytes()
    (tmp_path / "cut.seq").write_bytes(content[:-30])
    with pytest.raises(DataError, match=r"cut\.seq: damaged or cut short near byte \d+ of the SequenceFile; fetch it"):
        index_sequence_file(tmp_path / "cut.seq")
    packed = bytearray((DATA / "datum_record.seq").read_bytes())
    index = index_sequence_file(shutil.copy(DATA / "datum_record.seq", tmp_path / "b.seq"))
    assert FORMAT.digest(None, tmp_path / "b.seq") == FORMAT.digest(None, DATA / "datum_record.seq")
    packed[index.reader.locations[0][1] + 10] ^= 0xFF
    (tmp_path / "b.seq").write_bytes(packed)
    assert FORMAT.digest(None, tmp_path / "b.seq") != FORMAT.digest(None, DATA / "datum_record.seq")
    with index.reader.opened() as read, pytest.raises(RecordError, match="damaged"):
        read(0)
    (tmp_path / "old.seq").write_bytes(b"SEQ\x04" + content[4:])
    with pytest.raises(DataError, match="not a SequenceFile of version 6; it starts with b'SEQ"):
        index_sequence_file(tmp_path / "old.seq")
    snappy = content.replace(b"\x00\x00", b"\x01\x00\x04snap", 1)
    (tmp_path / "snappy.seq").write_bytes(snappy)
    with pytest.raises(DataError, match="compressed by snap, which is not read here; allowed: none, DefaultCodec"):
        index_sequence_file(tmp_path / "snappy.seq")


def test_a_key_that_is_no_tuple_is_a_bad_record(tmp_path):
    content = (DATA / "caffeonspark_files.seq").read_bytes()
    at = content.index(b"n01.png")
    (tmp_path / "a.seq").write_bytes(content[: at - 3] + b"\x77" + content[at - 2 :])
    index = index_sequence_file(tmp_path / "a.seq")
    assert index.labels.tolist() == [0, 2]
    assert [(item.name, item.reason) for item in index.rejected] == [
        ("a_1", "the object that Java serialized has a part of kind 0x77; a tuple of plain values has none")
    ]


def test_a_look_reads_the_first_records(tmp_path):
    config = IngestConfig(source=DATA / "datum_none.seq", output=tmp_path / "o")
    assert len(find_format("sequence_file").index_start(config, config.source, tmp_path, 2).names) == 2
