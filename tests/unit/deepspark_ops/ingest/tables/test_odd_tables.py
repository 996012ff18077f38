"""Odd tables, the same in every format: the dataset or the message of ingestion."""

import codecs
from contextlib import suppress
from datetime import date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from deepspark_ops.config.ingest import IngestConfig, SourceConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.files.file_batches import avro_batches, avro_schema, check_files
from deepspark_ops.ingest.files.json_rows import json_batches, json_schema
from deepspark_ops.ingest.preview import make_preview
from deepspark_ops.ingest.sources.registry import detect_format
from deepspark_ops.shards.verification import verify
from tests.reference.dataset_files import listed
from tests.reference.table_files import write_table

FORMATS = ("parquet", "orc", "csv", "jsonl", "avro")
N_ROWS = 30
HOURS = [datetime(2024, 1, 1) + timedelta(hours=i) for i in range(N_ROWS)]


def table(**columns) -> pa.Table:
    rng = np.random.default_rng(0)
    plain = {"id": range(N_ROWS), "a": rng.normal(size=N_ROWS), "b": rng.normal(size=N_ROWS)}
    return pa.table({**plain, "label": [i % 3 for i in range(N_ROWS)], **columns})


def trained_on(tmp_path, ending, rows, *, mark=b"", **options):
    """Ingest the table; return the manifest of the training set."""
    path = write_table(tmp_path / f"t.{ending}", rows)
    path.write_bytes(mark + path.read_bytes())
    (tmp_path / "look").mkdir()
    return verify(make_preview(SourceConfig(source=path, **options), tmp_path / "look").dataset / "train")


def features_of(manifest) -> list[str]:
    return [column.name for column in manifest.table.features]


TIMES = {
    "seconds": pa.array(HOURS, pa.timestamp("s")),
    "milliseconds": pa.array(HOURS, pa.timestamp("ms")),
    "microseconds": pa.array(HOURS, pa.timestamp("us")),
    "nanoseconds": pa.array(HOURS, pa.timestamp("ns")),
    "in_a_zone": pa.array(HOURS, pa.timestamp("us", "UTC")),
    "days": pa.array([date(2024, 1, 1 + i) for i in range(N_ROWS)], pa.date32()),
}


@pytest.mark.parametrize(
    ("ending", "time"),
    [*(("parquet", time) for time in TIMES), *((ending, "microseconds") for ending in FORMATS[1:]), ("avro", "days")],
)
def test_a_column_of_times_is_left_out(tmp_path, ending, time):
    manifest = trained_on(tmp_path, ending, table(t=TIMES[time]))
    assert (manifest.n_samples, features_of(manifest)) == (N_ROWS, ["a", "b"])


@pytest.mark.parametrize(
    ("ending", "option"),  # JSON has no times
    [("parquet", "label_column"), ("orc", "feature_columns"), ("csv", "group_column"), ("avro", "weight_column"),
     ("parquet", "id_column")],
)  # fmt: skip
def test_a_named_column_of_times_is_refused(tmp_path, ending, option):
    with pytest.raises(ConfigError, match=f'^{option}: column "t" holds dates or times'):
        trained_on(tmp_path, ending, table(t=TIMES["microseconds"]), **{option: "t"})


@pytest.mark.parametrize("ending", ["parquet", "orc", "csv", "avro"])
def test_a_label_of_times_is_refused_as_such(tmp_path, ending):
    with pytest.raises(ConfigError, match=r'^label_column: column "label" holds dates or times; allowed: whole'):
        trained_on(tmp_path, ending, table(label=TIMES["microseconds"]))


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path, ending):
    manifest = trained_on(tmp_path, ending, table(), mark=codecs.BOM_UTF8)
    assert (manifest.table.id, features_of(manifest)) == ("id", ["a", "b"])


@pytest.mark.parametrize(
    ("ending", "label"), [("parquet", 0), ("orc", 4), ("csv", "cat"), ("jsonl", 2.5), ("avro", "cat"), ("csv", 4)]
)
def test_labels_that_are_all_the_same_are_warned_of_and_of_nothing_else(tmp_path, ending, label):
    manifest = trained_on(tmp_path, ending, table(label=[label] * N_ROWS))
    assert manifest.warnings == {"one_label": 1}


@pytest.mark.parametrize("ending", FORMATS)
def test_a_table_without_rows_is_refused_as_such(tmp_path, ending):
    with pytest.raises(DataError, match=rf"^source={tmp_path}/t\.{ending}: the table has no rows$"):
        trained_on(tmp_path, ending, table().slice(0, 0))


@pytest.mark.parametrize("ending", ["parquet", "orc", "avro"])
def test_features_without_a_value_are_named_with_what_leaves_them_out(tmp_path, ending):
    rows = table(a=pa.nulls(N_ROWS, pa.float64()), c=pa.nulls(N_ROWS, pa.float64()))
    with pytest.raises(DataError, match=r'no training row has a value in column "a", "c"; .*feature_columns=!a,!c$'):
        trained_on(tmp_path, ending, rows)
    path = tmp_path / f"t.{ending}"
    (tmp_path / "again").mkdir()
    preview = make_preview(SourceConfig(source=path, feature_columns="!a,!c"), tmp_path / "again")
    assert features_of(verify(preview.dataset / "train")) == ["b"]


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl", "avro"])  # ORC has no such type
def test_a_column_of_no_type_is_left_out_and_refused_as_an_option(tmp_path, ending):
    rows = table(a=pa.nulls(N_ROWS))
    assert features_of(trained_on(tmp_path, ending, rows)) == ["b"]
    for option in ("label_column", "group_column", "weight_column", "id_column"):
        (tmp_path / option).mkdir()
        with pytest.raises(ConfigError, match=f'^{option}: column "a" holds no value; allowed: '):
            trained_on(tmp_path / option, ending, rows, **{option: "a"})


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl", "avro"])
def test_a_label_of_no_type_is_refused_as_such(tmp_path, ending):
    with pytest.raises(ConfigError, match=r'^label_column: column "label" holds no value; allowed: '):
        trained_on(tmp_path, ending, table(label=pa.nulls(N_ROWS)))


@pytest.mark.parametrize("ending", ["parquet", "orc", "avro"])
def test_labels_without_a_value_are_named(tmp_path, ending):
    with pytest.raises(DataError, match='first: 0: label "label" is missing'):
        trained_on(tmp_path, ending, table(label=pa.nulls(N_ROWS, pa.int64())))


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def without_end(content: bytes) -> bytes:
    return content[:-100]


def with_another_footer(content: bytes) -> bytes:
    return content[:-20] + bytes([content[-20] ^ 0xFF]) + content[-19:]


def start_alone(content: bytes) -> bytes:
    return content[:4]


DAMAGES = [
    (ending, query, damage)
    for ending in ("parquet", "orc", "avro")
    for query in (None, "SELECT * FROM source")
    for damage in (cut, without_end, with_another_footer, start_alone)
    # An Avro file has no footer: the rows must be read, by Spark's tasks for a query.
    if ending != "avro" or damage is start_alone or (query is None and damage is not with_another_footer)
]


@pytest.mark.parametrize(("ending", "query", "damage"), DAMAGES)
def test_a_damaged_file_is_refused_before_spark_starts(tmp_path, ending, damage, query):
    from deepspark_ops.ingest.tables.spark_job import open_table
    from deepspark_ops.processes.spark_context import SparkOnDemand

    path = write_table(tmp_path / "table" / f"part-1.{ending}", table())
    file_bytes = path.read_bytes()
    write_table(path.with_name(f"part-0.{ending}"), table())
    path.write_bytes(damage(file_bytes))

    def start():
        pytest.fail("Spark starts")

    source_format = {"parquet": "parquet", "orc": "orc", "avro": "avro"}[ending]
    config = IngestConfig(source=path.parent, output=tmp_path / "out", source_format=source_format, query=query)

    def read():
        files = open_table(SparkOnDemand(start), config, config.source).files
        for part in files.parts:
            list(files.batches(part, ["a"], 10))

    with pytest.raises(DataError, match=rf"part-1\.{ending}: (not a readable|damaged)"):
        read()


@pytest.mark.parametrize("ending", ["orc", "parquet", "avro"])
def test_damage_anywhere_in_a_file_is_a_data_error_or_changes_values_alone(tmp_path, ending):
    path = write_table(tmp_path / f"t.{ending}", table(t=TIMES["microseconds"], note=["a"] * N_ROWS))
    file_bytes = path.read_bytes()
    schema = avro_schema(path) if ending == "avro" else None
    rng = np.random.default_rng(3)
    for _ in range(300):
        content = bytearray(file_bytes)
        start = int(rng.integers(len(content)))
        for offset in range(start, min(len(content), start + int(rng.integers(1, 30)))):
            content[offset] ^= int(rng.integers(1, 256))
        path.write_bytes(content)
        with suppress(DataError):
            check_files(path, ending)
            if schema is not None:
                sum(batch.num_rows for batch in avro_batches(path, schema))


UNTYPED = ("csv", "jsonl")


def word_in(tmp_path, ending, words, column="a"):
    """Write a table whose first values of a column are other words."""
    rows = table().to_pandas().astype({column: object})
    rows.loc[: len(words) - 1, column] = words
    path = tmp_path / f"word.{ending}"
    if ending == "csv":
        rows.to_csv(path, index=False)
    else:
        rows.to_json(path, orient="records", lines=True)
    return path


@pytest.mark.parametrize("ending", UNTYPED)
@pytest.mark.parametrize("column", ["a", "label"])
def test_a_word_among_numbers_costs_its_row_alone(tmp_path, ending, column):
    preview = make_preview(SourceConfig(source=word_in(tmp_path, ending, ["oops"], column)), tmp_path)
    manifest = verify(preview.dataset / "train")
    assert (features_of(manifest), manifest.n_samples, manifest.n_rejected) == (["a", "b"], N_ROWS - 1, 1)
    reasons = listed(preview.dataset / "train", "rejected.jsonl").read_text()
    subject = 'label \\"label\\"' if column == "label" else 'column \\"a\\"'
    assert f'{subject}: no finite number, the text is \\"oops\\"' in reasons


@pytest.mark.parametrize("ending", UNTYPED)
def test_a_class_with_a_name_among_numbers_stays_a_class(tmp_path, ending):
    preview = make_preview(SourceConfig(source=word_in(tmp_path, ending, ["other"] * 2, "label")), tmp_path)
    manifest = verify(preview.dataset / "train")
    assert (manifest.class_names, manifest.n_samples) == (("0", "1", "2", "other"), N_ROWS)


@pytest.mark.parametrize("ending", UNTYPED)
def test_a_missing_value_s_word_makes_no_bad_row(tmp_path, ending):
    preview = make_preview(SourceConfig(source=word_in(tmp_path, ending, ["NA", " null"])), tmp_path)
    manifest = verify(preview.dataset / "train")
    assert (features_of(manifest), manifest.n_samples) == (["a", "b"], N_ROWS)


@pytest.mark.parametrize("ending", FORMATS)
def test_texts_are_no_numbers_if_the_file_or_more_than_a_tenth_say_so(tmp_path, ending):
    codes = [str(9000 + i) for i in range(N_ROWS)]
    words = ["B-9000"] * 4 + codes[4:]
    manifest = trained_on(tmp_path, ending, table(city=words, zip=words if ending == "csv" else codes))
    assert features_of(manifest) == ["a", "b"]


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(("ending", "lines"), [("jsonl", '{"a": \n[1, 2]\n'), ("csv", "1,2\n1,2,3,4,5\n")])
def test_a_line_that_is_no_record_is_a_bad_row(tmp_path, ending, lines, is_first):
    path = write_table(tmp_path / f"t.{ending}", table())
    header, newline, rows = path.read_text().partition("\n") if ending == "csv" else ("", "", path.read_text())
    path.write_text(header + newline + (lines + rows if is_first else rows + lines))
    assert detect_format(path) == ("csv" if ending == "csv" else "json_lines")
    manifest = verify(make_preview(SourceConfig(source=path), tmp_path).dataset / "train")
    assert (features_of(manifest), manifest.n_samples, manifest.n_rejected) == (["a", "b"], N_ROWS, 2)


def test_features_of_json_lines_have_the_order_of_spark(tmp_path):
    rows = [{"z": i, "b": i * 0.5, "Y": -i, "label": i % 2} for i in range(N_ROWS)]
    for day in range(2):
        write_table(tmp_path / "t" / f"day={day}" / "part.jsonl", pa.Table.from_pylist(rows))
    preview = make_preview(SourceConfig(source=tmp_path / "t"), tmp_path)
    assert features_of(verify(preview.dataset / "train")) == ["Y", "b", "z", "day"]


@pytest.mark.parametrize("row", [0, 20])
def test_a_word_in_an_array_of_numbers_costs_its_row_alone(tmp_path, row):
    arrays = [[i, 2.5] for i in range(N_ROWS)]
    path = write_table(tmp_path / "t.jsonl", table(array=arrays))
    lines = path.read_text().splitlines()
    lines[row] = lines[row].replace(f'"array":[{float(row)},2.5]', '"array":["x",2.5]')
    assert '"x"' in lines[row]
    path.write_text("\n".join(lines))
    preview = make_preview(SourceConfig(source=path), tmp_path)
    manifest = verify(preview.dataset / "train")
    assert (features_of(manifest), manifest.n_samples, manifest.n_rejected) == (["a", "array", "b"], N_ROWS - 1, 1)
    assert (
        'column \\"array\\": no array of 2 numbers' in listed(preview.dataset / "train", "rejected.jsonl").read_text()
    )


def test_lines_of_json_have_the_same_values_beside_a_broken_line(tmp_path):
    lines = [
        '{"whole": 3, "real": 1.5, "flag": true, "text": "2024-01-01", "items": [1, 2.5], "large": 9007199254740993}',
        '{"real": 2, "text": "\\u00e9", "other": {"a": 1}, "items": [], "whole": null}',
        '{"whole": -1, "real": 1e300, "flag": false, "items": null, "text": ""}',
    ]
    whole, broken = tmp_path / "whole.jsonl", tmp_path / "broken.jsonl"
    whole.write_text("\n".join(lines))
    broken.write_text("\n".join([*lines, "no record"]))
    schema = json_schema([whole])
    columns = ["large", "text", "items", "real", "flag", "whole"]
    (rows,) = json_batches([whole], schema, columns)
    (beside,) = json_batches([broken], schema, columns)
    assert rows.schema == beside.schema
    assert rows == beside[:3]
    assert beside[3:].to_pylist() == [dict.fromkeys(columns)]
