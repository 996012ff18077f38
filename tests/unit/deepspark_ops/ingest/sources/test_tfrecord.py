"""TFRecord files that TensorFlow wrote (tests/fixtures/tfrecord), whole, damaged, and with features missing."""

import shutil
from functools import partial

import cv2
import numpy as np
import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.records import RecordError
from deepspark_ops.ingest.sources.registry import detect_format, find_format
from deepspark_ops.ingest.sources.tfrecord import FORMAT
from tests.paths import FIXTURES
from tests.reference.ingest_in_process import index_of

index_tfrecord = partial(index_of, "tfrecord")

DATA = FIXTURES / "tfrecord"


def image_bgr(k: int) -> np.ndarray:
    return np.random.default_rng(k).integers(0, 256, (4, 5, 3), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "set").mkdir()
    for name in ("images-00000-of-00002", "images-00001-of-00002"):
        shutil.copy(DATA / name, tmp_path / "set" / name)
    return tmp_path / "set"


def decoded(index, numbers=None):
    with index.reader.opened() as read:
        records = [read(i) for i in range(len(index.names)) if numbers is None or i in numbers]
    return [cv2.imdecode(np.frombuffer(item, np.uint8), cv2.IMREAD_COLOR) for item in records]


def test_a_folder_of_files_gives_images_labels_and_names(folder, tmp_path):
    index = index_tfrecord(folder, tmp_path)
    assert index.names == [f"n0{k}.png" for k in range(5)]
    assert index.labels.tolist() == [0, 1, 2, 0, 1]
    for k, image in enumerate(decoded(index)):
        np.testing.assert_array_equal(image, image_bgr(k))
    with index.reader.subset(np.array([4, 1])).opened() as read:
        np.testing.assert_array_equal(cv2.imdecode(np.frombuffer(read(0), np.uint8), 1), image_bgr(4))
    assert detect_format(folder) == detect_format(folder / "images-00001-of-00002") == "tfrecord"


def test_a_gzipped_file_gives_the_same(tmp_path):
    index = index_tfrecord(DATA / "images.tfrecord.gz", tmp_path)
    np.testing.assert_array_equal(decoded(index)[2], image_bgr(2))
    assert detect_format(DATA / "images.tfrecord.gz") == "tfrecord"


def test_raw_pixels_become_bgr_planes(tmp_path):
    index = index_tfrecord(DATA / "raw.tfrecords", tmp_path)
    assert index.labels.tolist() == [0, 1, -1]
    assert index.names == [f"raw.tfrecords_{k}" for k in range(3)]
    with index.reader.opened() as read:
        np.testing.assert_array_equal(read(1), image_bgr(1).transpose(2, 0, 1))


def test_a_label_may_be_the_classes_name(folder, tmp_path):
    index = index_tfrecord(folder, tmp_path, label_column="image/class/text")
    assert (index.class_names, index.are_names) == (("goldfish", "shark", "tench"), True)
    assert index.labels.tolist() == [2, 0, 1, 2, 0]


def test_records_that_lack_something_are_named(tmp_path):
    index = index_tfrecord(DATA / "odd.tfrecord", tmp_path)
    assert index.names == ["n00.png", "floats"]
    assert [(item.position, item.name, item.reason) for item in index.rejected] == [
        (1, "no_image", 'feature "image/encoded" is missing'),
        (2, "no_label", 'feature "image/class/label" is missing'),
    ]
    with (
        index.reader.opened() as read,
        pytest.raises(RecordError, match=r'"image/encoded" holds 2 numbers; allowed: an'),
    ):
        read(1)


def test_a_missing_feature_is_refused_with_the_existing_features(tmp_path):
    with pytest.raises(ConfigError) as caught:
        index_tfrecord(DATA / "raw.tfrecords", tmp_path, image_column="pixels")
    assert str(caught.value) == (
        f'{DATA}/raw.tfrecords: the first record has no feature "pixels"; it holds depth (1 number), height (1 number),'
        " image_raw (bytes), label (1 number), width (1 number); name one with image_column"
    )


def test_a_flipped_bit_is_a_bad_record_and_a_cut_file_is_refused(folder, tmp_path):
    path = folder / "images-00000-of-00002"
    content = bytearray(path.read_bytes())
    digest = FORMAT.digest(None, folder)
    content[content.index(b"IDAT") + 9] ^= 1
    path.write_bytes(content)
    assert FORMAT.digest(None, folder) != digest
    index = index_tfrecord(folder, tmp_path)
    with index.reader.opened() as read:
        with pytest.raises(RecordError, match="damaged: the record at byte 12 of images-00000-of-00002 does not fit"):
            read(0)
        assert read(1)
    path.write_bytes(content[:-7])
    with pytest.raises(
        DataError, match=r"images-00000-of-00002: damaged or cut short: the record at byte \d+ ends past"
    ):
        index_tfrecord(folder, tmp_path)


def test_files_of_several_sets_are_not_mixed(tmp_path):
    for name in ("train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001"):
        shutil.copy(DATA / "images-00000-of-00002", tmp_path / name)
    with pytest.raises(ConfigError, match="holds several sets: train, validation; put the files of each into a folder"):
        index_tfrecord(tmp_path, tmp_path)
    (tmp_path / "validation-00000-of-00001").unlink()
    assert len(index_tfrecord(tmp_path, tmp_path).names) == 6


def test_records_of_another_message_and_empty_files_are_refused(tmp_path):
    (tmp_path / "a.tfrecord").write_bytes(b"\x03" + bytes(11) + b"\xff\xff\xff" + bytes(4))
    with pytest.raises(DataError, match=r"0: 3 bytes that are no tf\.train\.Example"):
        index_tfrecord(tmp_path / "a.tfrecord", tmp_path)
    (tmp_path / "b.tfrecord").write_bytes(b"")
    with pytest.raises(DataError, match=r"b\.tfrecord: no record"):
        index_tfrecord(tmp_path / "b.tfrecord", tmp_path)


def test_a_look_reads_the_first_records(folder, tmp_path):
    config = IngestConfig(source=folder, output=tmp_path / "o", image_column="image/encoded")
    assert len(find_format("tfrecord").index_start(config, folder, tmp_path, 2).names) == 2
