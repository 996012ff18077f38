"""Tables as Spark reads tables: one session, every format, equal datasets."""

import codecs
import gzip
import json
from datetime import datetime, timedelta
from pathlib import Path

import cv2
import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.recipe import make_recipe
from deepspark_ops.shards.reader import open_dataset
from deepspark_ops.shards.verification import verify
from tests.reference.dataset_files import listed
from tests.reference.table_files import a_table, ingest_parts, write_table

FORMATS = {
    "parquet": "parquet",
    "orc": "orc",
    "avro": "avro",
    "jsonl": "json_lines",
    "csv": "csv",
}


def ingest(context, tmp_path: Path, **options):
    from deepspark_ops.ingest.spark_job import ingest_source
    from deepspark_ops.processes.spark_context import SparkOnDemand

    config = IngestConfig(**{"output": tmp_path / "out", "samples_per_shard": 30, **options})
    work = tmp_path / "work"
    work.mkdir(parents=True, exist_ok=True)
    return ingest_source(SparkOnDemand.running(context), config, make_recipe(config), work)


def digests(manifests) -> list[str]:
    return [shard.sha256 for manifest in manifests.values() for shard in manifest.shards]


@pytest.mark.spark
def test_every_format_gives_the_same_shards_as_plain_arrow(context, tmp_path, caplog):
    table = a_table(150)
    halves = [table.slice(0, 70), table.slice(70)]
    options = {"feature_columns": "f*", "validation_fraction": 0.1, "samples_per_shard": 60}
    source = write_table(tmp_path / "one.parquet", table)
    config = IngestConfig(source=source, output=tmp_path / "expected", **options)
    expected = digests(ingest_parts(config, [table], tmp_path / "w"))
    assert len(expected) == 4
    for ending, name in FORMATS.items():
        folder = tmp_path / ending / "a table [1]"
        for number, half in enumerate(halves):
            write_table(folder / f"part-{number}.{ending}", half)
        manifests = ingest(context, tmp_path / ending, source=folder, **options)
        assert manifests["train"].source.format == name
        assert digests(manifests) == expected, name

    queries = {
        "avro_query": (tmp_path / "avro" / "a table [1]", {"query": "SELECT *, upper(note) AS shout FROM source"}),
        "no_source": (None, {"query": f"SELECT * FROM parquet.`{source}`"}),
    }
    for folder, (query_source, more) in queries.items():
        named = {} if query_source is None else {"source": query_source}
        manifests = ingest(context, tmp_path / folder, **named, **options, **more)
        assert digests(manifests) == expected, folder
        assert len(manifests["train"].source.sha256) == 64  # known by its rows alone
    chosen = {"limit": 100, "balance": "oversample", "deduplicate": True}
    config = IngestConfig(source=source, output=tmp_path / "fewer", **options, **chosen)
    fewer = ingest_parts(config, [table], tmp_path / "w2")
    assert fewer["train"].chosen["left_out_by_limit"] == 50
    manifests = ingest(context, tmp_path / "chosen", source=tmp_path / "orc" / "a table [1]", **options, **chosen)
    assert digests(manifests) == digests(fewer)
    assert manifests["train"].chosen == fewer["train"].chosen
    write_table(tmp_path / "growing.parquet", halves[0])
    first = ingest(context, tmp_path / "growing", source=tmp_path / "growing.parquet", **options)
    write_table(tmp_path / "growing.parquet", table)
    manifests = ingest(context, tmp_path / "growing", source=tmp_path / "growing.parquet", **options)
    assert (manifests["train"].version, manifests["train"].table) == (2, first["train"].table)
    assert digests(first)[0] in digests(manifests)
    counts = {split: manifest.label_histogram for split, manifest in manifests.items()}
    assert counts == {split: verify(tmp_path / "expected" / split).label_histogram for split in counts}
    folder = tmp_path / "parquet" / "a table [1]"
    write_table(folder / "part-2.parquet", a_table(30, seed=1))
    caplog.clear()
    with caplog.at_level("INFO"):
        manifests = ingest(context, tmp_path / "parquet", source=folder, **options)
    assert "1 of 3 files are read" in caplog.text
    assert sum(manifest.n_samples for manifest in manifests.values()) == 180
    with pytest.raises(ConfigError, match=r"Spark says: .*nowhere"):
        ingest(context, tmp_path / "x", source=Path("table:nowhere"), **options)


@pytest.mark.spark
@pytest.mark.parametrize("name", ["t.csv", "t.jsonl.gz"])
@pytest.mark.parametrize(
    "options",
    [{}, {"shuffle": False, "label_column": "price,whole", "weight_column": "w", "group_column": "real"}],
    ids=str,
)
def test_a_small_file_gives_the_same_shards_without_spark(context, tmp_path, monkeypatch, options, name):
    from deepspark_ops.ingest import spark_job

    rng = np.random.default_rng(0)
    whole, real = rng.integers(-(10**17), 10**17, 90), rng.normal(size=90)
    columns = {
        "id": range(90),
        "whole": whole,
        "price": real.round(3),
        "w": 0.5,
        "real": real,
        "note": "x; y",
        "b": True,
    }
    frame = pd.DataFrame({**columns, "day": "2024-01-01", "label": [("cat", "dog", "T 2")[i % 3] for i in range(90)]})
    frame.loc[4, "real"] = None
    path = tmp_path / name
    if name == "t.csv":
        frame = frame.astype({"whole": object})
        frame.loc[7, "whole"] = "oops"
        frame.to_csv(path, index=False, lineterminator="\r\n", sep=";")
        path.write_text(path.read_text() + "91;3\n")
    else:
        frame["numbers"] = [[i, 1.5, i % 3 or None] for i in range(90)]
        frame.to_json(path, orient="records", lines=True)
    options = {"source": path, "samples_per_shard": 30, "max_rejected_fraction": 0.1, **options}
    expected = ingest(context, tmp_path / "a", **options)
    monkeypatch.setattr(spark_job, "start_context", None)
    manifests = spark_job.run_ingest(IngestConfig(output=tmp_path / "b", **options))
    assert digests(manifests) == digests(expected)
    for split, manifest in manifests.items():
        same = ("table", "n_rejected", "label_histogram", "class_names", "recipe_sha256")
        assert [getattr(manifest, field) for field in same] == [getattr(expected[split], field) for field in same]


@pytest.mark.spark
def test_images_of_structs_and_arrays_of_one_length_are_read_without_spark(context, tmp_path, monkeypatch):
    from deepspark_ops.ingest import spark_job

    rng = np.random.default_rng(0)
    images = [cv2.imencode(".png", rng.integers(0, 256, (4, 5, 3), dtype=np.uint8))[1].tobytes() for _ in range(40)]
    label = [("cat", "dog")[i % 2] for i in range(40)]
    image_type = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    structs = pa.array([{"bytes": image, "path": None} for image in images], image_type)
    vectors = [None if i == 7 else row for i, row in enumerate(rng.normal(size=(40, 3)).tolist())]
    numbers = {"v": pa.array(vectors, pa.list_(pa.float32(), 3)), "u": pa.array(range(40), pa.uint8())}
    tables = {"images": pa.table({"image": structs, "label": label}), "rows": pa.table({**numbers, "label": label})}
    for name, table in tables.items():
        options = {"source": write_table(tmp_path / f"{name}.parquet", table), "max_rejected_fraction": 0.1}
        expected = ingest(context, tmp_path / name, query="SELECT * FROM source", **options)
        with monkeypatch.context() as patch:
            patch.setattr(spark_job, "start_context", None)
            manifests = spark_job.run_ingest(
                IngestConfig(output=tmp_path / f"{name}2", samples_per_shard=30, **options)
            )
        assert digests(manifests) == digests(expected), name
        assert manifests["train"].n_rejected + manifests["test"].n_rejected == (name == "rows")


@pytest.mark.spark
def test_lines_that_are_no_rows_are_named(context, tmp_path):
    rows = "\n".join(f"{i};{i * 0.5};{i % 2}" for i in range(40))
    (tmp_path / "t.csv").write_text(f"id;x;label\n41\n{rows}\n40;1;2;3;4\n")
    manifests = ingest(context, tmp_path, source=tmp_path / "t.csv", test_fraction=0, max_rejected_fraction=0.1)
    assert (manifests["train"].n_samples, manifests["train"].n_rejected) == (40, 2)
    lines = listed(tmp_path / "out" / "train", "rejected.jsonl").read_text().splitlines()
    assert [json.loads(line)["reason"] for line in lines] == ["the line is no record of the table"] * 2
    rows = "".join(f"{i}.5;note;{i % 2}\n" for i in range(6))  # with a column that is not used
    (tmp_path / "few.csv").write_text(f"x;text;label\nbroken\n{rows}7.5;a;0;9\n")
    manifests = ingest(context, tmp_path / "f", source=tmp_path / "few.csv", test_fraction=0, max_rejected_fraction=0.5)
    assert [column.name for column in manifests["train"].table.features] == ["x"]
    assert (manifests["train"].n_samples, manifests["train"].n_rejected) == (6, 2)
    (tmp_path / "t.jsonl").write_text("{ broken\n" + "".join(f'{{"x": {i}, "y": {i % 2}}}\n' for i in range(20)))
    manifests = ingest(context, tmp_path / "j", source=tmp_path / "t.jsonl", test_fraction=0, max_rejected_fraction=0.1)
    assert (manifests["train"].n_samples, manifests["train"].n_rejected) == (20, 1)


@pytest.mark.spark
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_word_among_numbers_costs_its_row_alone(context, tmp_path, ending):
    halves = [1.5] * 30 + [1] * 30  # all numbers are whole in the test set
    rows = pd.DataFrame({"id": range(60), "x": range(60), "half": halves, "zip": "B-9000", "label": 0.5}, dtype=object)
    rows.loc[3, "x"], rows.loc[4, "label"] = "oops", "bad"
    paths = {"train": tmp_path / f"train.{ending}", "test": tmp_path / f"test.{ending}"}
    for path, part in zip(paths.values(), (rows, rows[30:]), strict=True):
        part.to_csv(path, index=False) if ending == "csv" else part.to_json(path, orient="records", lines=True)
    options = {"source": paths["train"], "test_source": paths["test"], "max_rejected_fraction": 0.05}
    manifests = ingest(context, tmp_path, **options)
    assert {column.name for column in manifests["train"].table.features} == {"x", "half"}
    assert {split: manifest.n_samples for split, manifest in manifests.items()} == {"train": 58, "test": 30}
    lines = listed(tmp_path / "out" / "train", "rejected.jsonl").read_text().splitlines()
    assert [json.loads(line)["reason"] for line in lines] == [
        'column "x": no finite number, the text is "oops"',
        'label "label": no finite number, the text is "bad"',
    ]
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match=r"2 of 90 records cannot be used, .* allows 0; first: 3: column"):
        ingest(context, tmp_path / "none", **options | {"max_rejected_fraction": 0.01})


@pytest.mark.spark
@pytest.mark.parametrize("value", [[1, "x", 3], 3, "x", [1, [2], 3]])
def test_another_value_in_a_column_of_arrays_costs_its_row_alone(context, tmp_path, value):
    rows = [{"v": [i, i + 0.5, i or None], "a": i, "Z": -i, "words": ["x"], "label": i % 2} for i in range(40)]
    rows[3]["v"] = value
    source = tmp_path / "t" / "DAY=1" / "part.jsonl"
    source.parent.mkdir(parents=True)
    source.write_text("\n".join(map(json.dumps, rows)))
    manifests = ingest(context, tmp_path, source=tmp_path / "t", test_fraction=0, max_rejected_fraction=0.1)
    features = manifests["train"].table.features
    assert [(column.name, column.width) for column in features] == [("Z", 1), ("a", 1), ("v", 3), ("DAY", 1)]
    assert (manifests["train"].n_samples, manifests["train"].n_rejected) == (39, 1)


@pytest.mark.spark
def test_vectors_and_values_to_be_predicted(context, tmp_path):
    from pyspark.ml.linalg import Vectors
    from pyspark.sql import SparkSession

    rng = np.random.default_rng(0)
    vectors, prices = rng.normal(size=(30, 4)), rng.normal(size=30)
    rows = [
        (Vectors.dense(row), [float(i), 1.0], float(price))
        for i, (row, price) in enumerate(zip(vectors, prices, strict=True))
    ]
    frame = SparkSession(context).createDataFrame(rows, ["features", "more", "price"])
    frame.createOrReplaceTempView("houses")
    options = {"label_column": "price", "test_fraction": 0, "shuffle": False, "standardize": False}
    manifest = ingest(context, tmp_path, source=Path("table:houses"), **options)["train"]
    assert (manifest.n_classes, manifest.sample_shape, manifest.table.label_kind) == (0, (6,), "value")
    with h5py.File(tmp_path / "out" / "train" / manifest.shards[0].file) as shard:
        expected = np.concatenate([vectors, np.arange(30)[:, None], np.ones((30, 1))], axis=1)
        np.testing.assert_array_equal(shard["data"], expected.astype(np.float32))
        np.testing.assert_array_equal(shard["label"], prices.astype(np.float32))


@pytest.mark.spark
def test_images_in_a_table_go_the_way_of_other_images(context, tmp_path):
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (6, 5, 3), dtype=np.uint8) for _ in range(24)]
    files = [cv2.imencode(".png", image)[1].tobytes() for image in images]
    names = [f"row{i}" for i in range(24)]
    labels = [("cat", "dog")[i % 2] for i in range(24)]
    splits = [("train", "val", "test")[i % 3] for i in range(24)]
    content = [{"bytes": file, "path": None} for file in files]
    table = pa.table({"img": content, "label": labels, "id": names, "part": splits})
    source = write_table(tmp_path / "images.parquet", table)
    manifests = ingest(context, tmp_path, source=source, split_column="part", shuffle=False)
    assert {split: manifest.n_samples for split, manifest in manifests.items()} == {
        "train": 8,
        "validation": 8,
        "test": 8,
    }
    assert manifests["train"].class_names == ("cat", "dog")
    with open_dataset(tmp_path / "out" / "validation") as dataset:
        pixels, classes = dataset.read(0, 0, 8)
    np.testing.assert_array_equal(pixels, np.stack([image.transpose(2, 0, 1) for image in images[1::3]]))
    assert classes.tolist() == [i % 2 for i in range(1, 24, 3)]

    for name, file in zip(names, files, strict=True):
        (tmp_path / f"{name}.png").write_bytes(file)
    paths = pa.table({"file": [f"{name}.png" for name in names], "label": labels})
    source = write_table(tmp_path / "paths.orc", paths)
    manifests = ingest(context, tmp_path / "p", source=source, image_column="file", test_fraction=0, encoded=True)
    assert verify(tmp_path / "p" / "out" / "train").n_samples == manifests["train"].n_samples == 24


@pytest.mark.spark
def test_a_test_table_without_a_column_is_refused(context, tmp_path):
    source = write_table(tmp_path / "t.parquet", a_table())
    test = write_table(tmp_path / "other.parquet", a_table().drop_columns("f1"))
    with pytest.raises(DataError, match=r'test_source=.*other.parquet: column "f1" holds numbers in .*no such column'):
        ingest(context, tmp_path, source=source, test_source=test, feature_columns="f*")


HOURS = [datetime(2024, 1, 1) + timedelta(hours=i) for i in range(60)]


@pytest.mark.spark
@pytest.mark.long
def test_what_spark_reads_may_hold_times(context, tmp_path):
    plain = a_table(60)
    options = {"feature_columns": "f*", "label_column": "label", "samples_per_shard": 60}
    source = write_table(tmp_path / "plain.parquet", plain)
    config = IngestConfig(source=source, output=tmp_path / "expected", **options)
    expected = digests(ingest_parts(config, [plain], tmp_path / "w"))
    times = {
        "t": pa.array(HOURS, pa.timestamp("us")),
        "zoned": pa.array(HOURS, pa.timestamp("us", "UTC")),
        "day": pa.array([hour.date() for hour in HOURS], pa.date32()),
    }
    table = plain
    for name, values in times.items():
        table = table.append_column(name, values)
    for ending in ("orc", "csv", "jsonl"):
        path = write_table(tmp_path / f"times.{ending}", table)
        if ending != "orc":
            path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
        assert digests(ingest(context, tmp_path / ending, source=path, **options)) == expected, ending
    # pandas writes nanoseconds, refused by Spark; their values must count in a query.
    in_ns = table
    for name, zone in (("t", None), ("zoned", "UTC")):
        at = table.schema.get_field_index(name)
        in_ns = in_ns.set_column(at, name, pa.array(HOURS, pa.timestamp("ns", zone)))
    first_half = digests(
        ingest_parts(config.model_copy(update={"output": tmp_path / "half"}), [plain.slice(0, 30)], tmp_path / "w2")
    )
    # Each condition holds for the rows below an id and for no other: the first query would lack the other rows.
    conditions = {
        "t < TIMESTAMP_NTZ'2024-01-02 06:00:00'": 1030,
        "zoned < TIMESTAMP'2024-01-02 06:00:00 UTC'": 1030,
        "day < DATE'2024-01-03'": 1048,
    }
    queries = {
        "all": (" AND ".join(f"({condition}) = (id < {row})" for condition, row in conditions.items()), expected),
        "half": (" AND ".join(conditions), first_half),  # which Spark hands down to the reader
    }
    for name, rows in {"parquet_us": table, "parquet_ns": in_ns, "avro": table}.items():
        path = write_table(tmp_path / f"{name}.{name.partition('_')[0]}", rows)
        for chosen, (condition, expected_digests) in queries.items():
            query = f"SELECT * FROM source WHERE {condition}"
            manifests = ingest(context, tmp_path / f"{name}_{chosen}", source=path, query=query, **options)
            assert digests(manifests) == expected_digests, (name, chosen)
    for option in ("label_column", "group_column", "id_column"):
        with pytest.raises(ConfigError, match=f'^{option}: column "t" holds dates or times'):
            ingest(context, tmp_path / option, source=tmp_path / "times.orc", **{**options, option: "t"})


@pytest.mark.spark
def test_odd_tables_of_spark_are_refused_or_warned_of_as_others_are(context, tmp_path):
    table = a_table(60)
    label = table.schema.get_field_index("label")
    options = {"feature_columns": "f*"}
    queries = {"no_rows": "SELECT * FROM source WHERE id < 0"}
    for ending in ("orc", "csv", "jsonl"):
        path = write_table(tmp_path / f"one.{ending}", table.set_column(label, "label", pa.array(["cat"] * 60)))
        manifests = ingest(context, tmp_path / ending, source=path, **options)
        assert manifests["train"].warnings["one_label"] == 1
        assert "class_without_sample" not in manifests["train"].warnings
        empty = write_table(tmp_path / f"none.{ending}", table.slice(0, 0))
        with pytest.raises(DataError, match=f"^source={empty}: the table has no rows"):
            ingest(context, tmp_path / f"none_{ending}", source=empty, **options)
        with pytest.raises(DataError, match=f"^source={path}: the table has no rows"):
            ingest(context, tmp_path / f"query_{ending}", source=path, query=queries["no_rows"], **options)
    path = write_table(tmp_path / "null.orc", table.set_column(2, "f0", pa.nulls(60, pa.float64())))
    with pytest.raises(DataError, match=r'no training row has a value in column "f0"; .* feature_columns=f\*,!f0$'):
        ingest(context, tmp_path / "null", source=path, **options)
    query = "SELECT id, f1, null AS label FROM source"
    with pytest.raises(ConfigError, match=r'^label_column: column "label" holds no value'):
        ingest(context, tmp_path / "null_label", source=path, query=query)


def damaged(path: Path, at: float, n_bytes: int = 40) -> Path:
    content = bytearray(path.read_bytes())
    start = int(at * len(content))
    content[start : start + n_bytes] = bytes(byte ^ 0xFF for byte in content[start : start + n_bytes])
    path.write_bytes(content)
    return path


@pytest.mark.spark
def test_a_file_that_spark_finds_damaged_is_the_data_s_fault(context, tmp_path):
    """The footers are whole, so that Spark starts to read."""
    table = a_table(3000)
    pa.orc.write_table(table, tmp_path / "t.orc", compression="zlib")
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    write_table(tmp_path / "t.avro", table)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(write_table(tmp_path / "t.csv", table).read_bytes())[:-5000])
    query = {"query": "SELECT * FROM source"}
    for name, options in {"t.orc": {}, "t.parquet": query, "t.avro": query, "t.csv.gz": {}}.items():
        path = tmp_path / name
        if not name.endswith(".gz"):
            damaged(path, 0.3)
        with pytest.raises(DataError, match="damaged"):
            ingest(context, tmp_path / f"of_{name}", source=path, **options, feature_columns="f*")
