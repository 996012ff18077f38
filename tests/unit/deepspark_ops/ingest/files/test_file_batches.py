"""Tables without Spark: the files of a table, the first rows, and the look of check."""

import gzip
from pathlib import Path

import cv2
import fastavro
import numpy as np
import pyarrow as pa
import pytest

from deepspark_ops.config.ingest import IngestConfig, SourceConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.files.file_batches import avro_batches, avro_schema, first_rows
from deepspark_ops.ingest.files.table_files import data_files, digest_table, separator_of
from deepspark_ops.ingest.preview import make_preview, why_no_preview
from deepspark_ops.ingest.recipe import make_recipe
from deepspark_ops.ingest.sources.registry import detect_format
from deepspark_ops.ingest.tables.columns import columns_of
from deepspark_ops.shards.reader import open_dataset
from deepspark_ops.stores.store_path import data_path
from tests.reference.table_files import a_table, write_table

FORMATS = {"parquet": "parquet", "orc": "orc", "avro": "avro", "csv": "csv", "jsonl": "json_lines"}


@pytest.mark.parametrize("ending", FORMATS)
def test_each_format_is_detected_as_file_and_folder_and_read(tmp_path, ending):
    table = a_table(30)
    file = write_table(tmp_path / f"t.{ending}", table)
    folder = tmp_path / "parts"
    for part in range(2):
        write_table(folder / f"part-{part}.{ending}", table.slice(15 * part, 15))
    (folder / "_SUCCESS").write_text("")
    (folder / ".part-0.crc").write_bytes(b"\0")
    assert detect_format(file) == detect_format(folder) == FORMATS[ending]
    for source in (file, folder):
        rows = first_rows(source, FORMATS[ending], 20)
        assert rows.num_rows == 20 if source == file else rows.num_rows >= 15
        values = rows.column("f0").to_numpy(zero_copy_only=False)[:15]
        np.testing.assert_array_equal(values, table["f0"].to_numpy()[:15])
    config = SourceConfig(source=folder, feature_columns="f*")
    preview = make_preview(config, _fresh(tmp_path / "look"))
    assert preview.n_samples is None
    with open_dataset(preview.dataset / "test") as dataset:
        assert (dataset.sample_shapes, dataset.manifest.class_names) == (((3,), ()), ("cat", "dog", "eel"))


def _fresh(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_text_with_names_of_images_and_numbers_alone_is_no_table(tmp_path):
    assert separator_of("a\tb\n1\t2\n") == "\t"
    assert separator_of("a|b|c\n1|2|x\n1|2") == "|"
    assert separator_of("a,b\nbroken\n1,2\n") == separator_of("a,b\n1\n1,2\n1,2,3\n1,2\n1") == ","
    assert separator_of("a,b\n1\n1\n1,2\n") is None
    assert separator_of("a,b\n1\u2028\x85,2\n") == ","
    for text in ("a,b\n", "a,a\n1,2\n", "a\n1\n2\n", ",b\n1,2\n", "a,b\n1\n", "file,label\nx.png,1\n", "0.5,b\n1,2\n"):
        assert separator_of(text) is None, text
    wide = "".join(";".join(f"{start}{i}" for i in range(3_000)) + "\n" for start in ("pixel", 1, 2))
    assert separator_of("a,b\n" + "x" * 200_000 + "\n") is None
    (tmp_path / "wide.csv").write_text(wide)
    assert detect_format(tmp_path / "wide.csv") == "csv"
    assert first_rows(tmp_path / "wide.csv", "csv", 5).num_columns == 3_001
    (tmp_path / "list.csv").write_text("photo,label\n1.jpg,3\n2.jpg,4\n")
    assert detect_format(tmp_path / "list.csv") == "image_list"
    with gzip.open(tmp_path / "t.csv.gz", "wt") as handle:
        handle.write("a,b\n1,2\n3,4\n")
    assert detect_format(tmp_path / "t.csv.gz") == "csv"
    (tmp_path / "numbers.csv").write_text("1,2,3\n4,5,6\n")
    with pytest.raises(ConfigError, match=r'the first line, "1,2,3", is no header line'):
        first_rows(tmp_path / "numbers.csv", "csv", 5)
    assert detect_format(Path("table:shop.customers")) == "spark_table"


def test_a_digest_changes_with_content_and_with_files(tmp_path):
    write_table(tmp_path / "t" / "a.csv", a_table(5))
    old_digest = digest_table(tmp_path / "t")
    (tmp_path / "t" / "_SUCCESS").write_text("")
    assert digest_table(tmp_path / "t") == old_digest
    write_table(tmp_path / "t" / "b.csv", a_table(5))
    both = digest_table(tmp_path / "t")
    write_table(tmp_path / "t" / "b.csv", a_table(6))
    assert len({old_digest, both, digest_table(tmp_path / "t")}) == 3
    assert [file.name for file in data_files(tmp_path / "t")] == ["a.csv", "b.csv"]


def test_avro_of_many_types(tmp_path):
    fields = {
        "i": "int",
        "l": ["null", "long"],
        "d": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        "v": {"type": "array", "items": "float"},
        "e": {"type": "enum", "name": "kind", "symbols": ["a", "b"]},
        "t": {"type": "long", "logicalType": "timestamp-millis"},
        "u": ["null", "long", "string"],
    }
    schema = {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}
    from datetime import UTC, datetime
    from decimal import Decimal

    row = {"i": 1, "l": None, "d": Decimal("1.25"), "v": [1.0, 2.0], "e": "b", "t": datetime.now(UTC), "u": "x"}
    with (tmp_path / "t.avro").open("wb") as handle:
        fastavro.writer(handle, schema, [row] * 3)
    avro_fields = avro_schema(tmp_path / "t.avro")
    kinds = [column.kind for column in columns_of(avro_fields)]
    assert kinds == ["whole", "whole", "real", "numbers", "text", "time", "other"]
    (batch,) = avro_batches(tmp_path / "t.avro", avro_fields)
    assert batch.column("v").to_pylist() == [[1.0, 2.0]] * 3
    assert batch.column("d").to_pylist() == [Decimal("1.25")] * 3
    content = (tmp_path / "t.avro").read_bytes()
    (tmp_path / "cut.avro").write_bytes(content[:-30])
    with pytest.raises(DataError, match=r"cut\.avro: damaged Avro file"):
        list(avro_batches(tmp_path / "cut.avro", avro_fields))
    (tmp_path / "no.avro").write_bytes(b"Obj\x01nothing")
    with pytest.raises(DataError, match="not a readable Avro file"):
        avro_schema(tmp_path / "no.avro")


def test_an_avro_block_of_impossible_size_is_damage(tmp_path):
    path = write_table(tmp_path / "t.avro", pa.table({"note": ["a" * 60]}))
    content, schema = bytearray(path.read_bytes()), avro_schema(path)
    at = content.index(b"a" * 60) - 3  # before it: size of the block, number of the union's type, size of the text
    content[at : at + 6] = bytes([0x80] * 5 + [0x20])  # 2**39 bytes
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"t\.avro: damaged Avro file: MemoryError"):
        list(avro_batches(path, schema))


def test_images_of_a_table_are_looked_at(tmp_path):
    images = [np.full((4, 5, 3), i, np.uint8) for i in range(12)]
    files = [cv2.imencode(".png", image)[1].tobytes() for image in images]
    table = pa.table({"img": [{"bytes": file, "path": ""} for file in files], "label": [i % 3 for i in range(12)]})
    source = write_table(tmp_path / "t.parquet", table)
    preview = make_preview(SourceConfig(source=source), _fresh(tmp_path / "look"))
    with open_dataset(preview.dataset / "train") as dataset:
        pixels, labels = dataset.read(0, 0, 12)
    np.testing.assert_array_equal(pixels[:, 0, 0, 0], np.arange(12))
    assert labels.tolist() == [0, 1, 2] * 4


def test_what_only_spark_can_read_has_no_preview(tmp_path):
    for options in ({"source": "table:a.b"}, {"query": "SELECT 1"}, {"source": "x.csv", "query": "SELECT 1"}):
        assert why_no_preview(SourceConfig(**options)) == "Spark reads the table, and check starts no Spark"


def test_a_query_stands_alone_and_a_catalogs_table_is_no_path(tmp_path):
    from deepspark_ops.config.base import parse_config, with_paths_from

    config = parse_config(IngestConfig, {"query": "SELECT 1", "output": "out"})
    assert str(with_paths_from(config, tmp_path).source) == "table:"
    config = parse_config(IngestConfig, {"source": "table:a.b", "output": "out"})
    moved = with_paths_from(config, tmp_path)
    assert (str(moved.source), moved.output) == ("table:a.b", tmp_path / "out")
    assert make_recipe(moved).sources["train"].format == "spark_table"
    with pytest.raises(ConfigError, match=r"^source: must be given: Training data"):
        parse_config(IngestConfig, {"output": "out"})


@pytest.mark.parametrize(
    "options", [{"feature_columns": "f*"}, {"standardize": False}, {"missing": "zero"}, {"query": "SELECT 1"}]
)
def test_options_of_tables_are_refused_by_other_formats(tmp_path, options):
    (tmp_path / "list.txt").write_text("a.png 0\n")
    with pytest.raises(ConfigError, match=r"is of format image_list; the option is for parquet, orc"):
        make_recipe(IngestConfig(source=tmp_path / "list.txt", output=tmp_path, **options))


@pytest.mark.parametrize("ending", FORMATS)
def test_a_table_in_a_store_is_looked_at_as_on_a_disk(tmp_path, store, ending):
    """Arrow's own reader of ``s3://`` would ask Amazon, whatever endpoint this host has."""
    table = a_table(30)
    for part in range(2):
        write_table(store / "b" / "t" / f"day={part}" / f"part-0.{ending}", table.slice(15 * part, 15))
    local, stored = store / "b" / "t", data_path("s3://b/t")
    name = FORMATS[ending]
    assert detect_format(stored) == name
    assert first_rows(stored, name, 20).to_pydict() == first_rows(local, name, 20).to_pydict()
    digest = digest_table(stored)
    write_table(local / "day=1" / f"part-0.{ending}", table.slice(14, 15))
    assert digest_table(stored) != digest
