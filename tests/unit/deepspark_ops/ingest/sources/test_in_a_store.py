"""Sources in a store: the shards are those of the same files on the disk, to the bit."""

import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.shared_options.source_formats import SOURCE_FORMATS, TABLE_FORMATS
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.recipe import make_recipe
from deepspark_ops.ingest.sources.registry import find_format, with_own_splits
from deepspark_ops.shards.manifest import DatasetManifest
from deepspark_ops.stores import store_path
from deepspark_ops.stores.store_path import StorePath, data_path
from tests.paths import FIXTURES
from tests.reference.example_sources import EXAMPLE_SOURCES
from tests.reference.ingest_in_process import index_records, ingest
from tests.reference.raw_sources import write_cifar, write_idx, write_images, write_tar

DATA = FIXTURES / "caffe" / "data"


def class_folders(root: Path) -> str:
    write_images(root / "x", 12)
    for i in range(12):
        (root / "photos" / f"c{i % 3}").mkdir(parents=True, exist_ok=True)
        shutil.copy(root / "x" / "img" / f"{i}.png", root / "photos" / f"c{i % 3}")
    (root / "photos" / "c0" / ".hidden.png").write_bytes(b"x")
    (root / "photos" / "c0" / "note.txt").write_text("x")
    return "photos"


def sets_of_class_folders(root: Path) -> str:
    class_folders(root)
    for name in ("train", "val"):
        shutil.copytree(root / "photos", root / "both" / name)
    return "both"


def image_list(root: Path) -> str:
    write_images(root / "d", 12)
    with (root / "d" / "list.txt").open("a") as lines:
        lines.write("img/none.png 1\n")
    return "d/list.txt"


def tar(root: Path) -> str:
    files = image_list(root)
    images = {path.name: path.read_bytes() for path in (root / files).parent.glob("img/*")}
    write_tar(root / "a.tar.gz", {"list.txt": "".join(f"{name} 1\n" for name in images).encode(), **images})
    return "a.tar.gz::list.txt"


def zipped(root: Path) -> str:
    class_folders(root)
    with zipfile.ZipFile(root / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted((root / "photos").rglob("*.png")):
            archive.write(path, path.relative_to(root))
    return "a.zip"


def idx(root: Path) -> str:
    write_idx(root / "train-images-idx3-ubyte.gz", np.arange(12 * 9).reshape(12, 3, 3))
    write_idx(root / "train-labels-idx1-ubyte.gz", np.arange(12) % 3)
    return "train-images-idx3-ubyte.gz"


def cifar(root: Path) -> str:
    (root / "cifar").mkdir()
    for number in (1, 2):
        write_cifar(root / "cifar" / f"data_batch_{number}.bin", [1, 0, 2, 1, 0, 2], seed=number)
    (root / "cifar" / "batches.meta.txt").write_text("a\nb\nc\n")
    return "cifar"


def copied(name: str) -> Callable[[Path], str]:
    def write(root: Path) -> str:
        path = DATA / name
        path = path if path.exists() else FIXTURES / name
        shutil.copytree(path, root / path.name) if path.is_dir() else shutil.copy(path, root)
        return path.name

    write.__name__ = name.replace("/", "_")
    return write


def hdf5_list(root: Path) -> str:
    (root / "data").mkdir()
    for name in ("hdf5_a.h5", "hdf5_b.h5"):
        shutil.copy(DATA / name, root / "data")
    shutil.copy(DATA / "hdf5_list.txt", root)
    return "hdf5_list.txt"


SOURCES = [
    *(class_folders, sets_of_class_folders, image_list, tar, zipped, idx, cifar, hdf5_list),
    *map(copied, ("lmdb_raw", "leveldb_raw", "tfrecord/images.tfrecord.gz", "sequence_file/datum_block.seq")),
]
OPTIONS = {"resize_height": 8, "resize_width": 8, "test_fraction": 0.0, "max_rejected_fraction": 0.5}


def ingested_manifests(source: Path, folder: Path) -> dict[str, DatasetManifest]:
    config = with_own_splits(IngestConfig(source=source, output=folder / "out", **OPTIONS))
    return ingest(config, folder / "work")


@pytest.mark.parametrize("write", SOURCES, ids=lambda write: write.__name__)
def test_the_shards_are_those_of_the_disk(write, store, tmp_path):
    (store / "bucket").mkdir()
    name = write(store / "bucket")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    local_manifests = ingested_manifests(Path(f"{store / 'bucket'}/{name}"), tmp_path / "a")
    store_manifests = ingested_manifests(data_path(f"s3://bucket/{name}"), tmp_path / "b")
    assert store_manifests["train"].source.path == f"s3://bucket/{name}".replace("/both", "/both/train")
    for split, manifest in local_manifests.items():
        store_manifest = store_manifests[split]
        assert [shard.sha256 for shard in store_manifest.shards] == [shard.sha256 for shard in manifest.shards]
        assert store_manifest.n_rejected == manifest.n_rejected
        assert store_manifest.class_names == manifest.class_names
        assert store_manifest.warnings == manifest.warnings


FORMATS = [name for name in SOURCE_FORMATS if name not in TABLE_FORMATS]


def example_in(folder: Path, name: str) -> str:
    """Write the format's example source into a folder; return the source's path from there."""
    folder.mkdir()
    source = EXAMPLE_SOURCES[name](folder)
    if source.is_relative_to(folder):
        return str(source.relative_to(folder))
    shutil.copytree(source, folder / source.name) if source.is_dir() else shutil.copy(source, folder)
    return source.name


def records(name: str, source: Path, folder: Path) -> list[object]:
    folder.mkdir()
    index = find_format(name).index(IngestConfig(source=source, output=folder / "out"), source, folder)
    return index_records(index)


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_gives_the_records_of_the_disk(name, store, tmp_path):
    path = example_in(store / "bucket", name)
    local_records = records(name, Path(f"{store / 'bucket'}/{path}"), tmp_path / "a")
    store_records = records(name, data_path(f"s3://bucket/{path}"), tmp_path / "b")
    assert len(local_records) > 1
    assert [np.asarray(record).tolist() for record in store_records] == [
        np.asarray(record).tolist() for record in local_records
    ]


@pytest.mark.parametrize("name", FORMATS)
def test_the_digest_of_each_format_changes_with_its_files(name, tmp_path):
    source = Path(f"{tmp_path / 'source'}/{example_in(tmp_path / 'source', name)}")
    config = IngestConfig(source=source, output=tmp_path / "out")
    old_digest = find_format(name).digest(config, source)
    largest = max((path for path in (tmp_path / "source").rglob("*") if path.is_file()), key=lambda p: p.stat().st_size)
    largest.write_bytes(largest.read_bytes() + b"x")
    assert find_format(name).digest(config, source) != old_digest


@pytest.mark.parametrize("write", [class_folders, image_list, tar, idx], ids=lambda write: write.__name__)
def test_the_digest_changes_with_an_object(write, store, tmp_path):
    (store / "bucket").mkdir()
    name = write(store / "bucket")
    config = IngestConfig(source=data_path(f"s3://bucket/{name}"), output=tmp_path / "out")
    old_digest = make_recipe(config).sha256
    store_path._listed.cache_clear()
    assert make_recipe(config).sha256 == old_digest
    named = store / "bucket" / name.partition("::")[0]
    is_alone = named.suffix in (".gz", ".zip")
    folder = named if named.is_dir() else named.parent
    changed = named if is_alone else max(folder.rglob("*.png"))
    os.utime(changed, ns=(5, 5))
    store_path._listed.cache_clear()
    assert make_recipe(config).sha256 != old_digest


def test_an_object_that_is_refused_is_a_bad_record_with_the_stores_reason(store, tmp_path, monkeypatch):
    (store / "bucket").mkdir()
    name = image_list(store / "bucket")
    read = StorePath.read_bytes

    def denied(path):
        if path.name == "3.png":
            raise PermissionError(13, "the store denies access", str(path))
        return read(path)

    monkeypatch.setattr(StorePath, "read_bytes", denied)
    ingested_manifests(data_path(f"s3://bucket/{name}"), tmp_path)
    rejected = "".join(path.read_text() for path in (tmp_path / "out").rglob("rejected-*.jsonl"))
    assert '"the store denies access: s3://bucket/d/img/3.png"' in rejected
    assert '"no such object: s3://bucket/d/img/none.png"' in rejected


def test_a_list_on_the_disk_may_name_objects(store, tmp_path):
    (store / "bucket").mkdir()
    write_images(store / "bucket" / "d", 6)
    lines = (store / "bucket" / "d" / "list.txt").read_text().replace("img/", "s3://bucket/d/img/")
    (tmp_path / "list.txt").write_text(lines)
    manifests = ingested_manifests(tmp_path / "list.txt", tmp_path)
    assert sum(manifest.n_samples for manifest in manifests.values()) == 6


def test_missing_objects_and_silent_stores_are_named(store, tmp_path, monkeypatch):
    config = IngestConfig(source=data_path("s3://bucket/none"), output=tmp_path / "out")
    with pytest.raises(ConfigError, match="source=s3://bucket/none: no such file or folder"):
        make_recipe(config)

    def silent(_path):
        raise OSError(111, "the store cannot be reached: refused", "s3://bucket/none")

    monkeypatch.setattr(StorePath, "entry", silent)
    with pytest.raises(ConfigError, match="source=s3://bucket/none: the store cannot be reached"):
        make_recipe(config)
    (store / "bucket").mkdir()
    with pytest.raises((ConfigError, DataError)):
        make_recipe(config)
