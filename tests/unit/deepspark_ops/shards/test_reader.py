"""Reading a split: any piece of any shard, what damage says, and a net's own sources behind the same face."""

import hashlib
import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

from caffe_import.files.datum import encode_datum
from caffe_import.proto import caffe_pb2
from deepspark_ops.errors import DataError
from deepspark_ops.shards import verification
from deepspark_ops.shards.files.hdf5_shard import write_hdf5_shard
from deepspark_ops.shards.files.lmdb_shard import sample_key, write_lmdb_shard
from deepspark_ops.shards.manifest import (
    DatasetManifest,
    FileRecord,
    ShardRecord,
    SourceRecord,
    read_manifest,
    sha256_of_file,
    split_manifest_path,
)
from deepspark_ops.shards.reader import open_dataset, open_layer_dataset
from deepspark_ops.shards.verification import verify
from tests.paths import FIXTURES
from tests.reference.dataset_files import put_manifest, put_manifest_text

CAFFE = FIXTURES / "caffe"
SIZES = (5, 4, 3, 3, 3, 3)
SHAPE = (1, 2, 3)


def image_of(sample: int) -> np.ndarray:
    return np.full(SHAPE, sample, np.uint8)


def make_split(folder: Path, shard_format: str) -> Path:
    """Write 21 samples in six shards; sample i holds pixels i and label i % 4."""
    shards, first = [], 0
    for number, size in enumerate(SIZES):
        numbers = range(first, first + size)
        path = folder / f"train-{number:05d}.{'lmdb' if shard_format == 'lmdb' else 'h5'}"
        if shard_format == "lmdb":
            write_lmdb_shard(path, ((sample_key(i, "x"), encode_datum(image_of(i), i % 4)) for i in numbers))
            data = path / "data.mdb"
        else:
            write_hdf5_shard(path, ((image_of(i), i % 4) for i in numbers), SHAPE)
            data = path
        record = ShardRecord(file=path.name, sha256=sha256_of_file(data), n_samples=size, n_bytes=data.stat().st_size)
        shards.append(record)
        first += size
    (folder / "mean.binaryproto").write_bytes(b"mean")
    manifest = DatasetManifest(
        split="train",
        shard_format=shard_format,
        encoded=False,
        source=SourceRecord(path="list.txt", format="image_list", sha256="0" * 64),
        recipe_sha256="1" * 64,
        sample_shape=SHAPE,
        n_samples=21,
        n_classes=4,
        label_histogram=(6, 5, 5, 5),
        mean_values=(10.0,),
        mean_file=FileRecord(file="mean.binaryproto", sha256=hashlib.sha256(b"mean").hexdigest()),
        shards=tuple(shards),
        n_rejected=0,
        n_bytes=sum(shard.n_bytes for shard in shards),
    )
    put_manifest(folder, manifest)
    return folder


@pytest.fixture(params=["lmdb", "hdf5"])
def split(request, tmp_path):
    return make_split(tmp_path / "train", request.param)


def test_every_piece_of_every_shard_is_what_was_written(split):
    with open_dataset(split) as dataset:
        assert (dataset.n_samples, dataset.sample_shapes, dataset.columns) == (21, (SHAPE, ()), ("data", "label"))
        first = 0
        for shard, size in enumerate(SIZES):
            for start in range(size):
                for count in range(1, size - start + 1):
                    images, labels = dataset.read(shard, start, count)
                    numbers = np.arange(first + start, first + start + count)
                    assert labels.dtype == np.int64
                    assert labels.tolist() == (numbers % 4).tolist()
                    np.testing.assert_array_equal(images[:, 0, 1, 2], numbers)
            first += size


def test_shards_are_read_in_any_order_with_few_files_open(split):
    with open_dataset(split) as dataset:
        n_open_files = len(os.listdir("/proc/self/fd"))
        for shard in (5, 0, 4, 1, 3, 2, 5, 0):
            assert dataset.read(shard, 1, 1)[0][0, 0, 0, 0] == sum(SIZES[:shard]) + 1
        assert len(os.listdir("/proc/self/fd")) - n_open_files <= 4
    assert len(os.listdir("/proc/self/fd")) == n_open_files


def test_nothing_is_opened_before_the_first_read(split):
    dataset = open_dataset(split)
    for shard in dataset.shards:
        Path(shard.name).rename(shard.name + ".away")
    with pytest.raises(DataError, match=r"no LMDB here|train-00000.h5: No such file or directory"):
        dataset.read(0, 0, 1)


def test_verify_returns_the_manifest_of_a_whole_split(split):
    assert verify(split) == read_manifest(split)


def test_shard_with_too_few_samples_is_named_with_the_remedy(split):
    manifest = read_manifest(split)
    shards = list(manifest.shards)
    shards[1] = shards[1].model_copy(update={"n_samples": 5000})
    changed = {"shards": tuple(shards), "n_samples": 5017, "label_histogram": (5002, 5, 5, 5)}
    put_manifest(split, manifest.model_copy(update=changed))
    expected = f'shard {split / shards[1].file}: manifest says 5,000 samples, found 4; run "deepspark ingest" again'
    with pytest.raises(DataError) as caught:
        verify(split)
    assert str(caught.value) == expected
    with open_dataset(split) as dataset, pytest.raises(DataError) as caught:
        dataset.read(1, 0, 1)
    assert str(caught.value) == expected


def test_shard_cut_short_is_named(split):
    shard = split / read_manifest(split).shards[2].file
    data = shard / "data.mdb" if shard.is_dir() else shard
    os.truncate(data, data.stat().st_size - 4096)
    with pytest.raises(DataError, match=r"(cut short|not a readable HDF5 file).*; run \"deepspark ingest\" again"):
        verify(split)


def test_longer_shard_is_named_without_a_digest(split):
    shard = split / read_manifest(split).shards[2].file
    data = shard / "data.mdb" if shard.is_dir() else shard
    data.write_bytes(data.read_bytes() + bytes(4096))
    with pytest.raises(DataError, match=r"manifest says [\d,]+ bytes, found [\d,]+; run \"deepspark ingest\" again"):
        verify(split, digests=False)


@pytest.mark.parametrize(("limit", "is_found"), [(0, False), (10**9, True)])
def test_without_a_word_small_splits_are_read_whole(split, monkeypatch, limit, is_found):
    monkeypatch.setattr(verification, "DIGESTS_UP_TO_BYTES", limit)
    (split / "mean.binaryproto").write_bytes(b"other")
    if is_found:
        with pytest.raises(DataError, match="SHA-256"):
            verify(split, digests=None)
    else:
        verify(split, digests=None)


def test_changed_byte_is_found(split):
    shard = split / read_manifest(split).shards[3].file
    data = shard / "data.mdb" if shard.is_dir() else shard
    content = bytearray(data.read_bytes())
    offset = content.rindex(bytes(image_of(13))) if shard.is_dir() else len(content) - 1
    content[offset] ^= 1
    data.write_bytes(content)
    with pytest.raises(
        DataError, match=rf"{data}: SHA-256 is .*, the manifest says .*; run \"deepspark ingest\" again"
    ):
        verify(split)


def test_missing_shard_and_changed_mean_are_found(split):
    (split / "mean.binaryproto").write_bytes(b"other")
    with pytest.raises(DataError, match=r"mean\.binaryproto: SHA-256"):
        verify(split)
    (split / "mean.binaryproto").unlink()
    with pytest.raises(DataError, match=r"mean\.binaryproto: the manifest names this file, it is missing"):
        verify(split)


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        (None, "no dataset.json beside it that names it"),
        ("{", "file: Invalid JSON"),
        ("{}", "split: Field required"),
        ('{"format_version": 2}', "format_version: Input should be 1"),
    ],
)
def test_bad_manifest_says_what_is_wrong(tmp_path, content, finding):
    (tmp_path / "train").mkdir()
    if content is not None:
        put_manifest_text(tmp_path, "train", content)
    with pytest.raises(DataError, match=finding) as caught:
        open_dataset(tmp_path / "train")
    assert 'run "deepspark ingest"' in str(caught.value)
    with pytest.raises(DataError, match="no such dataset folder"):
        open_dataset(tmp_path / "gone" / "train")


def test_raw_data_and_a_split_in_place_of_a_dataset(tmp_path):
    (tmp_path / "lmdb").mkdir()
    (tmp_path / "rows.csv").write_text("a,label")
    for raw in (tmp_path / "lmdb", tmp_path / "rows.csv"):
        with pytest.raises(DataError, match=f'^{raw}: no dataset of an ingestion; for raw data run "deepspark ingest'):
            open_dataset(raw / "train")
    put_manifest_text(tmp_path / "set", "train", "{}")
    with pytest.raises(
        DataError, match=f"^{tmp_path}/set/train: a split of a dataset; give the dataset: {tmp_path}/set"
    ):
        open_dataset(tmp_path / "set" / "train" / "train")
    with pytest.raises(DataError, match=f"^{tmp_path}/set/test: no such dataset folder"):
        open_dataset(tmp_path / "set" / "test")


@pytest.mark.parametrize("digests", [True, False])
@pytest.mark.parametrize(
    ("edit", "finding"),
    [
        ({"sample_shape": [1, 3, 2]}, "samples have shape (1, 2, 3), the manifest says (1, 3, 2)"),
        ({"sample_shape": [1, 6, 1]}, "samples have shape (1, 2, 3), the manifest says (1, 6, 1)"),
        ({"sample_shape": [2, 2, 3]}, "mean_values says 1, the channels of sample_shape are 2"),
        ({"sample_shape": [1, -2, -3]}, "sample_shape.1: Input should be greater than or equal to 1"),
        ({"n_samples": 20}, "n_samples says 20, the shards hold 21"),
        ({"n_classes": 3}, "n_classes says 3, label_histogram counts 4"),
        ({"n_classes": 3, "label_histogram": [7, 7, 7]}, "has label 3, the manifest knows 3 classes"),
        ({"label_histogram": [16, 5, 0, 0]}, "has label 3, the manifest knows 4 classes and counts no such sample"),
        ({"n_bytes": 7}, "n_bytes says 7, the shards hold"),
    ],
)
def test_edited_manifest_is_found(split, edit, finding, digests):
    path = split_manifest_path(split)
    path.write_text(json.dumps(json.loads(path.read_text()) | edit))
    with pytest.raises(DataError) as caught:
        verify(split, digests=digests)
    assert finding in str(caught.value)
    assert 'run "deepspark ingest" again' in str(caught.value)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", "..", "", "../train/../x", "../train/a/b", "a\0b"])
@pytest.mark.parametrize("field", ["shards", "mean_file", "rejected_file", "warnings_file"])
def test_a_manifest_names_files_of_its_own_folder_alone(split, field, name):
    path = split_manifest_path(split)
    plain = json.loads(path.read_text())
    record = {**plain["shards"][0], "file": name}
    of_mean = {"file": name, "sha256": "0"}
    edit = {"shards": [record], "mean_file": of_mean, "rejected_file": name, "warnings_file": name}[field]
    path.write_text(json.dumps(plain | {field: edit}))
    with pytest.raises(DataError, match="names no file of the dataset; allowed: a file of its own folder"):
        open_dataset(split)


def test_reader_refuses_samples_of_another_shape_than_the_manifests(split):
    path = split_manifest_path(split)
    path.write_text(path.read_text().replace(*("1,\n  2,\n  3", "1,\n  6,\n  1")))
    with open_dataset(split) as dataset, pytest.raises(DataError, match="samples have shape"):
        dataset.read(0, 0, 2)


def test_damaged_manifests_give_one_error_with_file_and_remedy_or_the_same_facts(tmp_path):
    split = make_split(tmp_path / "train", "lmdb")
    path = split_manifest_path(split)
    content = path.read_bytes()
    original = verify(split)
    generator = random.Random(13)
    refusals = []
    for _ in range(150):
        damaged = bytearray(content)
        for _ in range(generator.choice((1, 1, 3))):
            at = generator.randrange(len(damaged))
            damaged[at : at + generator.choice((0, 1, 1, 40))] = generator.choice(
                (b"", bytes([generator.randrange(256)]), b"\xff\xfe", b'"', b"-", b"9", b"null", b"[1e400]", b"\\u0000")
            )
        path.write_bytes(bytes(damaged))
        try:
            manifest = verify(split)
        except DataError as error:
            refusals.append(str(error))
        else:
            # Source, recipe, names and rejections are not of the samples.
            assert (manifest.sample_shape, manifest.n_samples, manifest.n_classes) == (SHAPE, 21, 4)
            assert [(s.file, s.n_samples) for s in manifest.shards] == [(s.file, s.n_samples) for s in original.shards]
    assert len(refusals) > 75
    assert [text for text in refusals if str(split) not in text or 'run "deepspark ingest"' not in text] == []


def layer_from(text: str) -> caffe_pb2.LayerParameter:
    return text_format.Parse('name: "d" ' + text, caffe_pb2.LayerParameter())


@pytest.mark.parametrize(
    ("text", "n_samples", "shapes", "is_transformed"),
    [
        (
            'type: "Data" top: "x" top: "y" data_param { source: "data/lmdb_raw" backend: LMDB }',
            7,
            ((3, 14, 17), ()),
            True,
        ),
        (
            'type: "HDF5Data" top: "label" top: "data" hdf5_data_param { source: "data/hdf5_list.txt" }',
            9,
            ((), (2, 3)),
            False,
        ),
        (
            'type: "ImageData" top: "x" top: "y" image_data_param { source: "data/list_png.txt"'
            ' root_folder: "data/img/" }',
            7,
            ((3, 14, 17), ()),
            True,
        ),
    ],
)
def test_a_nets_own_source_is_a_dataset_of_one_shard(text, n_samples, shapes, is_transformed):
    layer = layer_from(text)
    with open_layer_dataset(layer, CAFFE) as dataset:
        assert (dataset.n_samples, len(dataset.shards), dataset.sample_shapes) == (n_samples, 1, shapes)
        assert (dataset.columns, dataset.is_transformed, dataset.manifest) == (tuple(layer.top), is_transformed, None)
        columns = dataset.read(0, n_samples - 2, 2)
        assert [column.shape for column in columns] == [(2, *shape) for shape in shapes]
