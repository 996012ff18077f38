"""The mean of existing databases and datasets, against the file of Caffe's tool and a loop in numpy."""

from __future__ import annotations

import shutil
import tracemalloc
from pathlib import Path

import cv2
import numpy as np
import pytest

from caffe_import.files.datum import encode_datum
from caffe_import.files.mean_file import read_mean, write_mean
from caffe_import.proto import caffe_pb2
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.images import measured_mean
from deepspark_ops.ingest.images.measured_mean import measure_mean
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.files.lmdb_shard import sample_key, write_lmdb_shard
from tests.integration.small_run import make_dataset
from tests.paths import FIXTURES

DATA = FIXTURES / "caffe" / "data"


def unheard(n_done: int, of: int) -> None:
    """Ignore the progress."""


def caffes_mean(images: np.ndarray) -> np.ndarray:
    """compute_image_mean.cpp: float32 sums, one image after the other, divided by the count."""
    sums = np.zeros(images.shape[1:], np.float32)
    for image in images:
        sums = (sums + image.astype(np.float32)).astype(np.float32)
    return (sums / np.float32(len(images))).astype(np.float32)


def database(folder: Path, images: np.ndarray) -> Path:
    write_lmdb_shard(folder, [(sample_key(i, "x"), encode_datum(image, i)) for i, image in enumerate(images)])
    return folder


@pytest.mark.parametrize("name", ["lmdb_raw", "lmdb_png", "leveldb_raw"])
def test_the_file_is_that_of_compute_image_mean(name: str, tmp_path: Path) -> None:
    progress: list[tuple[int, int]] = []
    measured = measure_mean(DATA / name, "train", lambda n_done, of: progress.append((n_done, of)))
    write_mean(tmp_path / "mean.binaryproto", measured.image)
    assert (tmp_path / "mean.binaryproto").read_bytes() == (DATA / "mean.binaryproto").read_bytes()
    assert progress[-1] == (7, 7)
    recorded = read_mean(DATA / "mean.binaryproto")
    np.testing.assert_allclose(measured.values, recorded.astype(np.float64).mean(axis=(1, 2)), rtol=1e-6)


@pytest.mark.parametrize("n_images", [1, 5_000])
def test_bytes_have_the_mean_of_caffes_loop(n_images: int, tmp_path: Path) -> None:
    images = np.random.default_rng(3).integers(0, 256, (n_images, 1, 3, 5)).astype(np.uint8)
    measured = measure_mean(database(tmp_path / "db", images), "train", unheard)
    assert measured.n_images == n_images
    np.testing.assert_array_equal(measured.image, caffes_mean(images))


def test_float_data_have_the_mean_of_caffes_loop() -> None:
    datums = []
    measured = measure_mean(DATA / "lmdb_float", "train", unheard)
    import lmdb

    with lmdb.open(str(DATA / "lmdb_float"), readonly=True, lock=False) as environment, environment.begin() as reading:
        for _, record in reading.cursor():
            datum = caffe_pb2.Datum.FromString(record)
            datums.append(np.float32(datum.float_data).reshape(datum.channels, datum.height, datum.width))
    np.testing.assert_allclose(measured.image, caffes_mean(np.stack(datums)), rtol=1e-6, atol=1e-7)


def test_a_dataset_has_the_mean_of_a_split_over_its_shards(tmp_path: Path) -> None:
    samples = make_dataset(tmp_path)
    for split, (images, _) in samples.items():
        expected = caffes_mean(images)
        np.testing.assert_array_equal(measure_mean(tmp_path, split, unheard).image, expected)
        folder = DatasetPaths(tmp_path).split(split)
        np.testing.assert_array_equal(measure_mean(folder, "train", unheard).image, expected)
    with pytest.raises(ConfigError, match="split=tests: the dataset has train, test"):
        measure_mean(tmp_path, "tests", unheard)


def test_memory_does_not_grow_with_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_mean, "_BLOCK_BYTES", 1 << 20)
    image = np.zeros((3, 128, 128), np.uint8)
    peaks = []
    for n_images in (100, 800):
        folder = database(tmp_path / str(n_images), np.broadcast_to(image, (n_images, *image.shape)))
        tracemalloc.start()
        measure_mean(folder, "train", unheard)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]
    assert peaks[1] < 8 << 20


def test_mistakes_are_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"found neither an LMDB \(data.mdb\), nor a LevelDB"):
        measure_mean(tmp_path, "train", unheard)
    sizes = [cv2.imencode(".png", np.zeros((size, 4, 3), np.uint8))[1].tobytes() for size in (4, 6)]
    records = [caffe_pb2.Datum(data=data, encoded=True).SerializeToString() for data in sizes]
    write_lmdb_shard(tmp_path / "sizes", [(sample_key(i, "x"), record) for i, record in enumerate(records)])
    with pytest.raises(DataError, match=r"images behind position 1 are uint8 \(3, 6, 4\), the first ones uint8"):
        measure_mean(tmp_path / "sizes", "train", unheard)
    shutil.copytree(DATA / "lmdb_raw", tmp_path / "cut")
    (tmp_path / "cut" / "data.mdb").write_bytes((DATA / "lmdb_raw" / "data.mdb").read_bytes()[:8_192])
    with pytest.raises(DataError, match="damaged LMDB"):
        measure_mean(tmp_path / "cut", "train", unheard)
