"""A file with another content, but the same size and time of change: ``stamp=digest`` sees the change, ``time`` not."""

import os
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest.commit import current_dataset
from deepspark_ops.ingest.files import table_files
from deepspark_ops.ingest.recipe import make_recipe
from deepspark_ops.operators.tasks.run_plan import ingest_digest
from deepspark_ops.shards.manifest import read_manifest
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import image_bgr, write_images
from tests.reference.table_files import (
    a_table,
    counted_rows,
    ingest_files,
    ingest_parts,
    without_missing_values,
    write_table,
)


def replace_in_place(path: Path, content: bytes) -> None:
    """Give a file another content; size and time of change stay."""
    stat = path.stat()
    assert len(content) == stat.st_size
    assert content != path.read_bytes()
    path.write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def write_plain(path: Path, table: pa.Table) -> None:
    """Write uncompressed values: tables with the same number of rows give files of the same size."""
    path.parent.mkdir(exist_ok=True)
    pa.parquet.write_table(table, path, compression="none", use_dictionary=False)


def bmp_of(number: int) -> bytes:
    return cv2.imencode(".bmp", image_bgr(number))[1].tobytes()


@pytest.mark.parametrize("form", ["list", "folders"])
@pytest.mark.parametrize("stamp", ["time", "digest"])
def test_an_image_of_the_same_size_and_time(tmp_path, form, stamp):
    source = write_images(tmp_path / "raw", 30, suffix=".bmp")
    image = source.parent / "img" / "7.bmp"
    if form == "folders":
        source = tmp_path / "classes"
        for number in range(30):
            (source / f"c{number % 3}").mkdir(parents=True, exist_ok=True)
            (source / f"c{number % 3}" / f"{number}.bmp").write_bytes(bmp_of(number))
        image = source / "c1" / "7.bmp"
    config = IngestConfig(source=source, output=tmp_path / "out", test_fraction=0.0, stamp=stamp)
    ingest(config, tmp_path / "work")
    old_digest = ingest_digest(config)
    assert current_dataset(config, make_recipe(config)) is not None
    assert ingest_digest(config) == old_digest
    replace_in_place(image, bmp_of(999))

    is_seen = stamp == "digest"
    assert (current_dataset(config, make_recipe(config)) is None) == is_seen
    assert (ingest_digest(config) != old_digest) == is_seen
    ingest(config, tmp_path / "work", goes_on=True)
    train = read_manifest(tmp_path / "out" / "train")
    assert [shard.n_samples for shard in train.shards] == ([29, 1] if is_seen else [30])


def test_another_stamp_is_no_other_dataset(tmp_path):
    source = write_images(tmp_path / "raw", 30)
    config = IngestConfig(source=source, output=tmp_path / "out", test_fraction=0.0)
    first = ingest(config, tmp_path / "work")
    second = ingest(config.model_copy(update={"stamp": "digest"}), tmp_path / "work", goes_on=True)
    assert second["train"].shards == first["train"].shards


@pytest.mark.parametrize("stamp", ["time", "digest"])
def test_a_file_of_a_large_table(tmp_path, stamp, monkeypatch):
    monkeypatch.setattr(table_files, "_READ_UP_TO_BYTES", 100)
    table = without_missing_values(a_table(90))
    for number in range(3):
        write_plain(tmp_path / "t" / f"{number}.parquet", table.slice(number * 30, 30))
    config = IngestConfig(source=tmp_path / "t", output=tmp_path / "out", label_column="label", stamp=stamp)
    ingest_files(config, tmp_path / "work")
    old_digests = make_recipe(config).sha256, ingest_digest(config)
    write_plain(tmp_path / "other.parquet", table.slice(30, 30).set_column(2, "f0", [np.arange(30.0)]))
    replace_in_place(tmp_path / "t" / "1.parquet", (tmp_path / "other.parquet").read_bytes())

    new_digests = make_recipe(config).sha256, ingest_digest(config)
    _, read = ingest_files(config, tmp_path / "work", goes_on=True)
    if stamp == "time":
        assert (new_digests, read) == (old_digests, [])
        return
    assert new_digests[0] != old_digests[0]
    assert new_digests[1] != old_digests[1]
    assert read == [tmp_path / "t" / "1.parquet"]
    ingest_files(config.model_copy(update={"output": tmp_path / "whole"}), tmp_path / "work2")
    for split in ("train", "test"):
        assert counted_rows(tmp_path / "out", split) == counted_rows(tmp_path / "whole", split)


@pytest.mark.parametrize("suffix", [".parquet", ".orc", ".avro", ".jsonl"])
def test_a_replaced_image_that_a_table_names(tmp_path, suffix):
    write_images(tmp_path / "raw", 30, suffix=".bmp")
    table = pa.table({"file": [f"img/{i}.bmp" for i in range(30)], "label": [i % 3 for i in range(30)]})
    source = write_table(tmp_path / f"t{suffix}", table)
    options = {"source": source, "root_folder": tmp_path / "raw", "image_column": "file", "output": tmp_path / "out"}
    config = IngestConfig(**options)
    old_digests = make_recipe(config).sha256, ingest_digest(config)
    assert (make_recipe(config).sha256, ingest_digest(config)) == old_digests
    image = tmp_path / "raw" / "img" / "7.bmp"
    image.write_bytes(bmp_of(999))
    os.utime(image, (0, 0))
    new_digests = make_recipe(config).sha256, ingest_digest(config)
    assert old_digests[0] != new_digests[0]
    assert old_digests[1] != new_digests[1]

    by_content = config.model_copy(update={"stamp": "digest"})
    old_digests = make_recipe(by_content).sha256, ingest_digest(by_content)
    replace_in_place(image, bmp_of(998))
    new_digests = make_recipe(by_content).sha256, ingest_digest(by_content)
    assert old_digests[0] != new_digests[0]
    assert old_digests[1] != new_digests[1]


def test_a_replaced_image_that_a_query_names(tmp_path):
    """Rows of a query are known by reading: their digest has the stamps of the images."""
    write_images(tmp_path / "raw", 30, suffix=".bmp")
    table = pa.table({"file": [f"img/{i}.bmp" for i in range(30)], "label": [i % 3 for i in range(30)]})
    config = IngestConfig(
        source=write_table(tmp_path / "t.parquet", table),
        root_folder=tmp_path / "raw",
        image_column="file",
        query="SELECT * FROM source",
        output=tmp_path / "out",
    )
    first = ingest_parts(config, [table], tmp_path / "work")
    second = ingest_parts(config, [table], tmp_path / "work")
    assert second["train"].recipe_sha256 == first["train"].recipe_sha256
    image = tmp_path / "raw" / "img" / "7.bmp"
    image.write_bytes(bmp_of(999))
    os.utime(image, (0, 0))
    changed = ingest_parts(config, [table], tmp_path / "work")
    assert changed["train"].recipe_sha256 != first["train"].recipe_sha256
