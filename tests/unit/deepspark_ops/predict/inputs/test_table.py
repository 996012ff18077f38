import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deepspark_ops.config.predict import PredictConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.predict.inputs.table import csv_rows, parquet_rows


def config_of(path, **options):
    return PredictConfig(bundle="b", input=path, output="o.parquet", **options)


def test_columns_of_numbers_without_label_and_id(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(
        pa.table({"id": [7, 8, 9], "a": [1, 2, None], "b": [0.5, float("inf"), 1.5], "label": [0, 1, 0]}), path
    )
    inputs = parquet_rows(config_of(path), 2)
    found = list(inputs.read())
    assert inputs.n_records == 3
    assert found[0].content.tolist() == [1.0, 0.5]
    assert [(record.id, record.error) for record in found] == [
        ("0", ""),
        ("1", "b is missing or not finite"),
        ("2", "a is missing or not finite"),
    ]
    assert [record.id for record in parquet_rows(config_of(path, id_column="id"), 2).read()] == ["7", "8", "9"]
    with pytest.raises(ConfigError, match=r"2 columns of numbers \(a, b, \.\.\.\), the bundle takes 5 numbers"):
        parquet_rows(config_of(path), 5)
    with pytest.raises(ConfigError, match=r"feature_columns=c: no such column in .*; it has id, a, b, label"):
        parquet_rows(config_of(path, feature_columns="a,c"), 2)


def test_a_column_of_lists_over_files_as_spark_writes_them(tmp_path):
    rows = np.arange(600, dtype=np.float32).reshape(200, 3)
    (tmp_path / "_SUCCESS").touch()
    for number, part in enumerate(np.split(rows, 2)):
        table = pa.table({"features": list(part)})
        pq.write_table(table, tmp_path / f"part-{number:05d}.parquet", row_group_size=30)
    inputs = parquet_rows(config_of(tmp_path), 3)
    found = list(inputs.read())
    assert inputs.n_records == 200
    np.testing.assert_array_equal(np.stack([record.content for record in found]), rows)
    assert [record.id for record in found] == [str(number) for number in range(200)]


def test_csv_is_read_by_its_columns_names(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("name,x,y\none,1,2.5\ntwo,3,\n")
    found = list(csv_rows(config_of(path, feature_columns="y,x", id_column="name"), 2).read())
    assert (found[0].id, found[0].content.tolist()) == ("one", [2.5, 1.0])
    assert (found[1].id, found[1].error) == ("two", "y is missing or not finite")
    path.write_text("name,x,y\none,1,2.5\ntwo,3,many\n")
    with pytest.raises(DataError, match="many"):
        list(csv_rows(config_of(path, feature_columns="y,x"), 2).read())


def test_no_table_at_all(tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"nothing")
    with pytest.raises(DataError, match="not readable as Parquet"):
        parquet_rows(config_of(tmp_path / "t.parquet"), None)
