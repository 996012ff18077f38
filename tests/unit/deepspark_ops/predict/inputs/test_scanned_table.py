"""ORC, Avro and JSON lines as inputs of a bundle: found by a look, read as the same table in Parquet is."""

import gzip

import numpy as np
import pyarrow as pa
import pytest

from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.predict.inputs.choose import open_inputs
from tests.reference.table_files import write_table
from tests.unit.deepspark_ops.predict.inputs.test_table import numbers, predict_config

TABLE = pa.table({"id": [7, 8, 9], "a": [1.0, 2.0, None], "b": [0.5, 4.0, 1.5], "label": [0, 1, 0]})


@pytest.mark.parametrize("ending", ["orc", "avro", "jsonl"])
def test_rows_are_those_of_the_same_table_in_parquet(tmp_path, ending):
    expected = list(open_inputs(predict_config(write_table(tmp_path / "t.parquet", TABLE)), numbers(2)).read())
    inputs = open_inputs(predict_config(write_table(tmp_path / f"t.{ending}", TABLE)), numbers(2))
    records = list(inputs.read())
    assert [(record.id, record.error) for record in records] == [(record.id, record.error) for record in expected]
    for record, other in zip(records[:2], expected[:2], strict=True):
        np.testing.assert_array_equal(record.content, other.content)
    assert inputs.n_records == (3 if ending == "orc" else None)
    named = open_inputs(predict_config(tmp_path / f"t.{ending}", id_column="id", feature_columns="b,a"), numbers(2))
    assert [(record.id, record.content.tolist()) for record in named.read(0, 1)] == [("7", [0.5, 1.0])]
    with pytest.raises(ConfigError, match='feature_columns: the table has no column "c"'):
        open_inputs(predict_config(tmp_path / f"t.{ending}", feature_columns="c"), numbers(1))


@pytest.mark.parametrize("ending", ["orc", "avro", "jsonl"])
def test_a_folder_is_read_file_by_file_and_in_parts(tmp_path, ending):
    table = pa.table({"x": np.arange(9000.0)})
    for number in range(3):
        write_table(tmp_path / "t" / f"part-{number}.{ending}", table.slice(3000 * number, 3000))
    (tmp_path / "t" / "_SUCCESS").touch()
    inputs = open_inputs(predict_config(tmp_path / "t"), numbers(1))
    for start, stop in [(0, None), (2999, 3001), (5990, 6100), (8999, None)]:
        rows_of_part = [(record.id, record.content.tolist()) for record in inputs.read(start, stop)]
        assert rows_of_part == [(str(row), [float(row)]) for row in range(start, stop or 9000)]


def test_what_is_damaged_is_named(tmp_path):
    (tmp_path / "t.orc").write_bytes(b"ORC and nothing else")
    with pytest.raises(DataError, match=r"input=.*t.orc: not readable as ORC"):
        open_inputs(predict_config(tmp_path / "t.orc"), numbers(1))
    (tmp_path / "t.jsonl").write_text(
        '{"x": 1}\n' * 1500 + '{"x": \n{"x": "many"}\n{"x": "2.5"}\n{"x": [1]}\n{"y": 1}\n'
    )
    records = list(open_inputs(predict_config(tmp_path / "t.jsonl"), numbers(1)).read())
    no_number = "x is missing or not finite"
    errors = ["the line is no record of the table", no_number, "", no_number, no_number]
    assert [record.error for record in records] == [*[""] * 1500, *errors]
    assert records[1502].content.tolist() == [2.5]
    (tmp_path / "t.jsonl").write_text('{"v": [1, 2.5]}\n{"v": ["one", 2]}\n{"v": 3}\n{"v": [3, 4]}\n')
    records = list(open_inputs(predict_config(tmp_path / "t.jsonl", feature_columns="v"), numbers(2)).read())
    assert [record.error for record in records] == ["", "numbers are missing", "numbers are missing", ""]
    with gzip.open(tmp_path / "t.jsonl.gz", "wt") as packed:
        packed.write('{"x": 1.5}\n')
    (record,) = open_inputs(predict_config(tmp_path / "t.jsonl.gz"), numbers(1)).read()
    assert record.content.tolist() == [1.5]
