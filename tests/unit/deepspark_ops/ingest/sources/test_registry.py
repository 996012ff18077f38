"""Recognition of source formats by ``auto``, and the message for an unknown source."""

import gzip
import io
import json
import pkgutil
import re
import sqlite3
import tarfile
import zipfile
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.shared_options.source_formats import SOURCE_FORMATS, TABLE_FORMATS, SourceFormat
from deepspark_ops.errors import ConfigError
from deepspark_ops.ingest import sources
from deepspark_ops.ingest.sources import class_folders, tables
from deepspark_ops.ingest.sources.registry import (
    detect_format,
    find_format,
    resolve_format,
    with_own_splits,
)
from tests.paths import FIXTURES
from tests.reference.example_sources import EXAMPLE_SOURCES
from tests.reference.raw_sources import write_cifar, write_idx, write_images, write_tar
from tests.reference.table_files import a_table, write_table

DATA = FIXTURES / "caffe" / "data"


@pytest.mark.parametrize("name", SOURCE_FORMATS)
def test_auto_finds_each_format(tmp_path, name):
    assert detect_format(EXAMPLE_SOURCES[name](tmp_path)) == name


@pytest.mark.parametrize("name", [name for name in SOURCE_FORMATS if name not in TABLE_FORMATS])
def test_each_format_is_read_and_its_digest_is_steady(tmp_path, name):
    (tmp_path / "source").mkdir()
    source, chosen = EXAMPLE_SOURCES[name](tmp_path / "source"), find_format(name)
    config = IngestConfig(source=source, output=tmp_path / "dataset")
    index = chosen.index(config, source, tmp_path)
    assert len(index.labels) == len(index.names) > 1
    with index.reader.opened() as read, index.reader.subset(np.array([1])).opened() as read_subset:
        assert_same_record(read(1), read_subset(0))
    assert chosen.digest(config, source) == chosen.digest(config, source)


def assert_same_record(record, other):
    assert type(record) is type(other)
    if isinstance(record, np.ndarray):
        np.testing.assert_array_equal(record, other)
    else:
        assert record == other


def test_files_of_one_format_and_of_several_are_recognized(tmp_path):
    archive = write_tar(tmp_path / "a.tar.gz", {"list.txt": b"x 1\n"})
    (tmp_path / "cifar").mkdir()
    write_cifar(tmp_path / "cifar" / "data_batch_1.bin", [1])
    images = np.zeros((2, 3, 3))
    formats = {
        write_images(tmp_path / "d", 1): "image_list",
        Path(f"{archive}::list.txt"): "image_list",
        write_idx(tmp_path / "a-images-idx3-ubyte", images): "idx",
        write_idx(tmp_path / "b-images-idx3-ubyte.gz", images): "idx",
        tmp_path / "cifar": "cifar_binary",
        tmp_path / "cifar" / "data_batch_1.bin": "cifar_binary",
        DATA / "lmdb_raw": "caffe_lmdb",
    }
    assert {source: detect_format(source) for source in formats} == formats


def test_every_file_of_a_format_is_declared_and_every_declared_format_has_one():
    files = {module.name for module in pkgutil.iter_modules(sources.__path__)}
    assert files - {"format", "registry", "tables"} == set(SOURCE_FORMATS) - set(TABLE_FORMATS)
    assert set(tables.FORMATS) == set(TABLE_FORMATS)
    assert get_args(SourceFormat) == ("auto", *SOURCE_FORMATS)
    for name, line in SOURCE_FORMATS.items():
        assert find_format(name).kinds
        assert "\n" not in line


@pytest.mark.parametrize(
    ("members", "mode", "lists", "folders"),
    [
        (["list.txt", "1.jpg"], "w", ": {0}::list.txt", " (none there)"),
        (["b/list.csv", "a.txt", "photos/cat/1.jpg", "photos/dog/1.jpg"], "w:gz", ": {0}::a.txt, {0}::b/list.csv",
         ": {0}::photos"),
        (["cat/1.jpg", "dog/1.jpg"], "w:xz", " (none there)", ": {0}::."),
        (["x/train/cat/1.jpg", "x/val/cat/1.jpg"], "w:gz", " (none there)", ": {0}::x/train"),
        ([f"{number}.txt" for number in range(6)], "w",
         ": {0}::0.txt, {0}::1.txt, {0}::2.txt, {0}::3.txt and 2 more", " (none there)"),
    ],
)  # fmt: skip
def test_an_archive_without_a_member_is_answered_with_its_lists_and_folders(tmp_path, members, mode, lists, folders):
    archive = write_tar(tmp_path / "a.tar", dict.fromkeys(members, b"x 1\n"), mode=mode)
    with pytest.raises(ConfigError) as caught:
        detect_format(archive)
    finding = f"name the image list in it{lists}, or the folder of class folders{folders}".format(archive)
    assert str(caught.value) == f"source={archive} is an archive; {finding}"
    for member in re.findall(r"::([^, ]+)", finding):
        assert detect_format(Path(f"{archive}::{member}")) in ("image_list", "class_folders")


def test_a_large_compressed_archive_is_not_unpacked_for_the_names_of_its_members(tmp_path, monkeypatch):
    monkeypatch.setattr(class_folders, "_UNPACK_UP_TO_BYTES", 20)
    archive = write_tar(tmp_path / "a.tar", {"list.txt": b"x 1\n"}, mode="w:gz")
    with pytest.raises(ConfigError, match=r"list in it, e\.g\. .*::train\.txt, or .* folders, e\.g\. .*::images$"):
        detect_format(archive)


def foreign_files() -> dict[str, bytes]:
    arrays, array, archive, table = io.BytesIO(), io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.savez(arrays, x_train=np.zeros((2, 3)))
    np.save(array, np.zeros((2, 3)))
    with tarfile.open(fileobj=archive, mode="w") as held:
        for name in ("000.jpg", "000.cls"):
            held.addfile(tarfile.TarInfo(name))
    pyarrow.feather.write_feather(pa.table({"x": [1.0]}), table)
    with zipfile.ZipFile(book := io.BytesIO(), "w") as held:
        held.writestr("[Content_Types].xml", "<x/>")
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE t (x)")
    return {
        "a numpy file of arrays; write HDF5": arrays.getvalue(),
        "a numpy array; write HDF5": array.getvalue(),
        "a tar of WebDataset; unpack it": archive.getvalue(),
        "CIFAR's archive; unpack it, and give the folder in it": gzip.compress(
            tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin").tobuf() + bytes(1024)
        ),
        "CIFAR in pickles; take the binary version": tarfile.TarInfo("cifar-100-python/train").tobuf() + bytes(1024),
        "an Arrow file; write a table": table.getvalue(),
        "an Excel file; write a table, in Python: pandas.read_excel": book.getvalue(),
        "a pickle, which may run programs; write HDF5": b"\x80\x04\x95\x0f\0\0\0\0\0\0\0}.",
        "an SQLite database; write a table": database.serialize(),
        "a MATLAB file; write HDF5": b"MATLAB 5.0 MAT-file, Platform: GLNXA64",
        "compressed by zstd, which is not read": pa.Codec("zstd").compress(b"a,b\n1,2\n").to_pybytes(),
        "a JSON array, not lines of JSON; write a table": json.dumps([{"x": 1}], indent=1).encode(),
    }


@pytest.mark.parametrize(("finding", "content"), foreign_files().items(), ids=lambda value: str(value)[:12])
def test_a_file_that_is_not_read_is_answered_with_a_way_to_a_source(tmp_path, finding, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        detect_format(tmp_path / "file")
    assert str(caught.value).startswith(f"source={tmp_path / 'file'} is {finding}")
    assert "\n" not in str(caught.value)


def test_an_archive_of_other_data_is_to_be_unpacked(tmp_path):
    archive = write_tar(tmp_path / "a.tar", {"train-images-idx3-ubyte": b"x", "data.parquet": b"x"})
    with pytest.raises(ConfigError, match=r"a\.tar is an archive without an image list and class folders; unpack it"):
        detect_format(archive)


def test_a_table_with_a_file_of_each_set_is_no_mix_of_the_sets(tmp_path):
    names = {
        "train": "train-00000-of-00001.parquet",
        "test": "test-00000-of-00001.parquet",
        "validation": "val.parquet",
    }
    paths = {split: write_table(tmp_path / "t" / name, a_table(5)) for split, name in names.items()}
    config = with_own_splits(IngestConfig(source=tmp_path / "t", output=tmp_path))
    assert (config.source, config.test_source, config.validation_source) == tuple(paths.values())
    paths["test"].unlink()
    config = with_own_splits(IngestConfig(source=tmp_path / "t", output=tmp_path))
    assert (config.source, config.test_source, config.validation_source) == (paths["train"], paths["validation"], None)
    write_table(tmp_path / "t" / "train-00001-of-00002.parquet", a_table(5))
    with pytest.raises(ConfigError, match=r"has files of the sets train, val; put the files of each set into a folder"):
        with_own_splits(IngestConfig(source=tmp_path / "t", output=tmp_path))
    write_table(tmp_path / "t" / "part-0.parquet", a_table(5))
    assert with_own_splits(IngestConfig(source=tmp_path / "t", output=tmp_path)).source == tmp_path / "t"


def test_missing_source_folder_without_data_and_unknown_bytes(tmp_path):
    with pytest.raises(ConfigError, match=r"source=.*gone: no such file or folder"):
        detect_format(tmp_path / "gone")
    with pytest.raises(ConfigError, match=r"no such file or folder"):
        detect_format(Path(f"{tmp_path}/gone.tar::list.txt"))
    with pytest.raises(ConfigError) as caught:
        detect_format(tmp_path)
    assert str(caught.value).splitlines()[:2] == [
        f"source={tmp_path} is a folder of no known format; as a folder allowed:",
        f"  caffe_lmdb: {SOURCE_FORMATS['caffe_lmdb']}",
    ]
    assert "idx: " not in str(caught.value)
    (tmp_path / "train.txt").write_text("a 1\n")
    with pytest.raises(ConfigError, match=r"; did you mean the list .*/train\.txt\?$"):
        detect_format(tmp_path)
    (tmp_path / "x").write_bytes(b"\x00\x01\x02")
    (tmp_path / "data.mdb").write_bytes(bytes(4096))
    with pytest.raises(ConfigError, match=f"is a file of an LMDB; give its folder, {tmp_path}"):
        detect_format(tmp_path / "data.mdb")
    (tmp_path / "data.mdb").unlink()
    with pytest.raises(ConfigError, match=r"x is a file of no known format; as a file allowed:\n"):
        detect_format(tmp_path / "x")


def test_named_format_must_fit_the_source(tmp_path):
    def resolve(source: Path, name: str) -> str:
        return resolve_format(IngestConfig(source=source, output=tmp_path, source_format=name), source)

    assert resolve(DATA / "lmdb_raw", "caffe_lmdb") == "caffe_lmdb"
    with pytest.raises(ConfigError, match="is a folder, which source_format=idx cannot be"):
        resolve(DATA / "lmdb_raw", "idx")
    with pytest.raises(ConfigError, match="is a file, which source_format=caffe_lmdb cannot be"):
        resolve(DATA / "list_png.txt", "caffe_lmdb")
    with pytest.raises(ConfigError, match="no such file or folder"):
        resolve(tmp_path / "gone", "image_list")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "gcs://bucket/list.txt",
            r"source=gcs://bucket/list.txt names the file system gcs, .*gs://",
        ),
        ("s3n://bucket/a.tar::l.txt", r"source=s3n://bucket/a.tar::l.txt names the file system s3n, .*s3://"),
        ("data/list.txt", "source=.*data/list.txt: no such file or folder$"),
    ],
)
@pytest.mark.parametrize("folder", ["", "/work"])
def test_a_path_of_another_file_system_is_named(source, message, folder):
    with pytest.raises(ConfigError, match=message):
        detect_format(Path(folder) / source)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"labels": "l.idx"},
            r"labels=l\.idx: .*lmdb_raw is of format caffe_lmdb; the option is for idx: leave it out$",
        ),
        ({"label_column": "y"}, "label_column=y: .* for hdf5, tfrecord, parquet, .*, image_list: leave"),
        ({"cifar_labels": "coarse"}, "cifar_labels=coarse: .*; the option is for cifar_binary: "),
    ],
)
def test_an_option_that_the_format_does_not_read_is_refused(options, message):
    config = IngestConfig(source=DATA / "lmdb_raw", output="o", **options)
    with pytest.raises(ConfigError, match=message):
        resolve_format(config, config.source)


def test_a_wrong_format_is_refused_with_the_detected_format():
    config = IngestConfig(source=DATA / "lmdb_raw", output="o", source_format="hdf5")
    with pytest.raises(ConfigError, match=r"source_format=hdf5 cannot be; it looks like source_format=caffe_lmdb$"):
        resolve_format(config, config.source)


@pytest.mark.parametrize(
    ("files", "source", "source_format", "expected"),
    [
        (("data_batch_1.bin", "test_batch.bin"), ".", "cifar_binary", "test_batch.bin"),
        (("data_batch_1.bin", "test_batch.bin"), "data_batch_1.bin", "cifar_binary", "test_batch.bin"),
        (("train.bin", "test.bin"), ".", "cifar_binary", "test.bin"),
        (("train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte.gz"), "train-images-idx3-ubyte.gz", "idx", "t10k-i"),
        (("train-images-idx3-ubyte", "t10k-images-idx3-ubyte.gz"), "train-images-idx3-ubyte", "idx", None),
        (("data_batch_1.bin",), ".", "cifar_binary", None),
        (("train.bin", "test.bin"), ".", "caffe_lmdb", None),
    ],
)
def test_a_test_set_under_its_usual_name_is_found(tmp_path, files, source, source_format, expected):
    for name in files:
        (tmp_path / name).write_bytes(b"")
    test_source = find_format(source_format).usual_test(tmp_path / source)
    assert (test_source is None) == (expected is None)
    assert test_source is None or test_source.name.startswith(expected)
