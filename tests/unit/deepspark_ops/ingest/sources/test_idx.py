"""IDX files: MNIST's layout, gzipped or not, and files that do not fit together."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.sources.idx import find_labels
from tests.reference.ingest_in_process import index_of, source_digest_of
from tests.reference.raw_sources import write_idx

index_idx = partial(index_of, "idx")
digest_idx = partial(source_digest_of, "idx")

IMAGES = np.random.default_rng(0).integers(0, 17, (12, 5, 4))
LABELS = np.arange(12) % 10


def labels_beside(images: Path, labels: Path | None = None) -> Path:
    return find_labels(IngestConfig(source=images, output=Path("out"), labels=labels), images)


def write_pair(folder: Path, suffix: str = "", *, images=IMAGES, labels=LABELS) -> Path:
    write_idx(folder / f"t-labels-idx1-ubyte{suffix}", labels)
    return write_idx(folder / f"t-images-idx3-ubyte{suffix}", images)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_images_and_labels_are_those_of_the_files(tmp_path, suffix):
    index = index_idx(write_pair(tmp_path, suffix), tmp_path)
    assert index.labels.tolist() == LABELS.tolist()
    assert index.names == [str(i) for i in range(12)]
    with index.reader.subset(np.array([3, 7, 0])).subset(np.array([1, 2])).opened() as read:
        np.testing.assert_array_equal(read(0), IMAGES[7][np.newaxis])
        np.testing.assert_array_equal(read(1), IMAGES[0][np.newaxis])


def test_four_axes_are_channels_height_width(tmp_path):
    images = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    index = index_idx(write_pair(tmp_path, images=images, labels=np.zeros(2)), tmp_path)
    with index.reader.opened() as read:
        np.testing.assert_array_equal(read(1), images[1])


def test_labels_are_found_gzipped_or_not_beside_the_images(tmp_path):
    images = write_pair(tmp_path)
    plain = tmp_path / "t-labels-idx1-ubyte"
    assert labels_beside(images) == plain
    packed = plain.rename(tmp_path / "t-labels-idx1-ubyte.gz")
    assert labels_beside(images) == packed
    packed.unlink()
    with pytest.raises(
        ConfigError, match="no label file t-labels-idx1-ubyte beside it; give the file of images, and labels"
    ):
        labels_beside(images)
    with pytest.raises(ConfigError, match="no such file"):
        labels_beside(images, tmp_path / "gone")
    with pytest.raises(ConfigError, match="the name is not IMAGES-images-idx3-ubyte; give the file of images"):
        labels_beside(packed)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_unequal_lengths_name_both_files(tmp_path, suffix):
    source = write_pair(tmp_path, suffix, labels=LABELS[:11])
    with pytest.raises(DataError, match=rf"t-images-idx3-ubyte{suffix} holds 12 images, .*labels.* 11 labels"):
        index_idx(source, tmp_path)


def test_file_cut_short_says_how_much_is_missing(tmp_path):
    source = write_pair(tmp_path)
    source.write_bytes(source.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"axes \(12, 5, 4\) need 256 bytes, the file has 255"):
        index_idx(source, tmp_path)


def test_other_files_are_refused(tmp_path):
    source = write_pair(tmp_path)
    with pytest.raises(DataError, match=r"an IDX file of images has axes .*, found \(12,\)"):
        index_idx(tmp_path / "t-labels-idx1-ubyte", tmp_path, labels=source)
    source.write_bytes(b"GIF89a, not an IDX file")
    with pytest.raises(DataError, match="it starts with 47 49 46 38, expected 00 00 08 03"):
        index_idx(source, tmp_path)


def test_empty_file_of_images_is_refused(tmp_path):
    source = write_pair(tmp_path, images=IMAGES[:0], labels=LABELS[:0])
    with pytest.raises(DataError, match=r"the IDX file is empty, axes \(0, 5, 4\)"):
        index_idx(source, tmp_path)


def test_digest_sees_both_files(tmp_path):
    source = write_pair(tmp_path)
    first = digest_idx(source)
    write_idx(tmp_path / "t-labels-idx1-ubyte", LABELS[::-1])
    assert digest_idx(source) != first
