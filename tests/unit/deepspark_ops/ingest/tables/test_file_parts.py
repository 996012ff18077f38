"""Parquet files read by tasks themselves: the same rows as pyarrow's own table, or none where Spark has to read."""

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deepspark_ops.errors import DataError
from deepspark_ops.ingest.tables import file_parts
from deepspark_ops.ingest.tables.file_parts import parquet_table


def a_table(n_rows=1000, seed=0) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "id": pa.array([f"r{i}" for i in range(n_rows)]),
            "x": pa.array(rng.normal(size=n_rows), mask=rng.random(n_rows) < 0.1),
            "n": pa.array(rng.integers(-9, 9, n_rows), pa.int16()),
            "yes": rng.random(n_rows) < 0.5,
            "v": pa.array([list(map(float, row)) for row in rng.normal(size=(n_rows, 3))]),
            "kind": pa.array(["ab"[i % 2] for i in range(n_rows)]).dictionary_encode(),
            "day": pa.array([datetime.date(2024, 1, 1)] * n_rows),
        }
    )


def read_all(table, columns, n_rows) -> pa.Table:
    batches = [batch for part in table.parts for batch in table.batches(part, columns, n_rows)]
    assert max(batch.num_rows for batch in batches) <= n_rows
    return pa.Table.from_batches(batches)


def test_rows_are_those_of_the_files_in_their_order(tmp_path, monkeypatch):
    all_rows = pa.concat_tables([a_table(1000), a_table(300, seed=1)])
    pq.write_table(all_rows.slice(0, 1000), tmp_path / "b.parquet", row_group_size=90)
    (tmp_path / "more").mkdir()
    pq.write_table(all_rows.slice(1000), tmp_path / "more" / "c.parquet", use_dictionary=False)
    (tmp_path / "_SUCCESS").touch()
    monkeypatch.setattr(file_parts, "_PART_BYTES", 20_000)
    table = parquet_table(tmp_path)
    assert [path.name for path in table.files] == ["b.parquet", "c.parquet"]
    assert len({part for part in table.parts if part.file == 0}) == 3
    columns = ["x", "n", "id", "kind", "v", "yes"]
    rows = read_all(table, columns, 64)
    expected = all_rows.select(columns).set_column(3, "kind", all_rows["kind"].cast(pa.string()))
    assert rows.select(columns).to_pylist() == expected.to_pylist()
    assert table.schema.field("kind").type == pa.string()


@pytest.mark.parametrize(
    "column",
    [
        pa.array([decimal.Decimal("1.5")] * 4),
        pa.array([1, 2, 3, 4], pa.uint16()),
        pa.array([{"type": 1, "values": [1.0]}] * 4),
    ],
    ids=["decimal", "unsigned", "vector"],
)
def test_what_spark_takes_for_something_else_is_left_to_spark(tmp_path, column):
    pq.write_table(pa.table({"x": [1.0] * 4, "odd": column}), tmp_path / "a.parquet")
    assert parquet_table(tmp_path / "a.parquet") is None


def test_folders_named_by_columns_other_columns_and_very_many_files_are_left_to_spark(tmp_path, monkeypatch):
    plain = pa.table({"x": [1.0] * 4})
    (tmp_path / "day=3").mkdir()
    pq.write_table(plain, tmp_path / "day=3" / "a.parquet")
    assert parquet_table(tmp_path) is None
    assert parquet_table(tmp_path / "day=3").files == (tmp_path / "day=3" / "a.parquet",)
    pq.write_table(plain.append_column("y", pa.array([1] * 4)), tmp_path / "day=3" / "b.parquet")
    assert parquet_table(tmp_path / "day=3") is None
    pq.write_table(plain, tmp_path / "day=3" / "b.parquet")
    assert len(parquet_table(tmp_path / "day=3").parts) == 2
    monkeypatch.setattr(file_parts, "MOST_FILES", 1)
    assert parquet_table(tmp_path / "day=3") is None


def test_files_that_a_task_could_not_hold_are_left_to_spark(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    table = pa.table({f"f{i}": rng.normal(size=2000) for i in range(9)})
    pq.write_table(table, tmp_path / "a.parquet")
    assert parquet_table(tmp_path / "a.parquet") is not None
    monkeypatch.setattr(file_parts, "_OPEN_BYTES", 9 * 2000 * 8)
    assert parquet_table(tmp_path / "a.parquet") is None
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=500, use_dictionary=False)
    assert parquet_table(tmp_path / "a.parquet") is not None


def test_another_file_in_a_folder_of_parts_has_a_remedy(tmp_path):
    pq.write_table(a_table(), tmp_path / "a.parquet")
    (tmp_path / "README.md").write_text("a text\n" * 20)
    with pytest.raises(
        DataError, match=r"README\.md: not a readable .*; a folder of a table holds its part files alone$"
    ):
        parquet_table(tmp_path)


def test_a_damaged_file_is_named(tmp_path):
    pq.write_table(a_table(), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match=r"b\.parquet: not a readable Parquet file"):
        parquet_table(tmp_path)
    content = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "b.parquet").write_bytes(content[:4] + b"\xff" * 5000 + content[5004:])
    table = parquet_table(tmp_path)
    with pytest.raises(DataError, match=r"b\.parquet: not a readable Parquet file"):
        read_all(table, ["id", "x"], 100)
