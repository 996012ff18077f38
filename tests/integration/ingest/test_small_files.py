"""Small files that are read without Spark: the rows of random files, and shards, are those of Spark."""

import gzip
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest.files.untyped_rows import CORRUPT
from deepspark_ops.ingest.tables.columns import columns_of, hashes_of, numbers
from deepspark_ops.ingest.tables.small_files import small_table

# fmt: off
CSV_VALUES = r"""
0 1 -1 +7 007 -0 42 2147483647 2147483648 -2147483649 9007199254740993 999999999999999999 1234567890123456789
99999999999999999999 1. .5 1.5 -0.0 0.1 1e5 1E-3 1.5e1 15e0 1.25e-7 1e400 1e-400 2.5e+3 1_0 0x10 1d 2f 3L NaN nan NA
N/A n/a null None Inf -Inf inf Infinity -Infinity +Infinity true True FALSE t yes cat dog eel_2 x/y.b -x - ? ½ ² ٣ é
T12 T12:30 12:30 Tokyo T t1 2024 2024-01-01 2024-1-1 2024-02-30 0000-01-01 2024-01 2023-12-31 2024-01-01T10:00:00
2024-01-01T10:00:00.123456 2024-01-01T10:00:00Z 2024-03-31T02:30:00 7590-VHVEG 5575-GNVDE 3x 12ab 1234AB 1Z 10K 5% $5
<=50K (x) #a 'q' a"b [1] {} @me ~ 1-2 1/2 1:2 _ __x epoch now today 日本 😀 B-9000 1.2.3 0.30000000000000004 1e x\y
123456789.12345678901234567890e20 1e-5 -7.25 8E2 0b1 +1.5 +.5 -.5 -1e2 1e+5 5e-324 1.7976931348623157e308 2e308 it's
+ . e5 E ... 1,5 -0,25 1.234,5 12,
 1111111111111111111 "cat" "5" "" "a""b" a"b" "a"b "true" 'a,b' "
""".split()
CSV_VALUES += ["", "", "", " ", "  ", " 1", "2 ", " 2.5 ", " 2024-01-01", " true", "cat ", " dog", " NaN", "two words",
               "2024-01-01 10:00:00", "2024-01-01 10", "2024-01-01 foo", "1 2", "1 a", "\u00a0", "\u20281", "a\x85b",
               "\x0c1", "\t", "\t5", "0" * 70, "9" * 60 + "X", "a" * 80, '"a, b"', '"a;b"', ' "a"', '" 5"']
JSON_VALUES = r"""
0 1 -1 -0 42 2147483648 9007199254740993 9223372036854775807 9223372036854775808 -9223372036854775808 1.0 1.50 -0.0 1e5
1E-3 0.1 1e400 NaN Infinity 01 +1 .5 1. true false null null null "" "cat" "5" "2024-01-01" "é" "日本" "\u00e9" "a\nb"
"\ud83d\ude00" "\ud83d" "a\"b" "a\/b" "a\qb" "😀" "true" [] [1,2] [3,4] [1.5,2] [1,null] [null] ["x"] [[1]] [true] {}
{"x":1} {"bytes":"a"} {"a":{"b":[]}} [9007199254740993,0.5] [1,"x"] [1e400] 0.1234567890123456789012345 5e-324
123456789012345678.5
""".split()
# fmt: on


@pytest.fixture
def spark_rows(context, tmp_path) -> Callable[[Path, str], pa.Table]:
    """Return a function that reads a file's rows by Spark, and the schema with the shares of numbers."""
    from deepspark_ops.ingest.tables.spark_job import open_table
    from deepspark_ops.processes.spark_context import SparkOnDemand

    def rows(path: Path) -> tuple:
        table = open_table(SparkOnDemand.running(context), IngestConfig(source=path, output=tmp_path), path)
        return table.columns, table.frame.toArrow().combine_chunks()

    return rows


def require_equal(path: Path, name: str, spark_rows) -> pa.RecordBatch:
    """Compare columns, values and hashes of a file that is read without Spark with Spark's."""
    batch = small_table(path, name)
    columns, table = spark_rows(path)
    assert columns_of(batch.schema) == list(columns)
    (expected,) = table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    assert batch.num_rows == expected.num_rows
    for column in columns:
        values, spark_values = (rows.column(column.name) for rows in (batch, expected))
        if column.kind in ("whole", "real", "flag"):
            np.testing.assert_array_equal(
                numbers(values, np.float64).view(np.uint64), numbers(spark_values, np.float64).view(np.uint64)
            )
        if column.kind in ("whole", "real", "flag", "text"):
            np.testing.assert_array_equal(hashes_of(values), hashes_of(spark_values), column.name)
        if column.kind in ("text", "numbers"):
            assert values.to_pylist() == spark_values.to_pylist()
    if CORRUPT in expected.schema.names:
        assert batch.column(CORRUPT).to_pylist() == expected.column(CORRUPT).to_pylist()
    return batch


def certain_columns(path: Path, name: str, write: Callable, columns: list[list[str]]) -> list[list[str]]:
    """Return the columns that are read without Spark, each in a file of its own."""
    kept = []
    for column in columns:
        write(path, [["k"] * len(column) if name == "csv" else ["1"] * len(column), column])
        if small_table(path, name) is not None:
            kept.append(column)
    return kept


def write_csv(path: Path, columns: list[list[str]], mark: str = "|") -> None:
    rows = [[f"c{i}" for i in range(len(columns))], *zip(*columns, strict=True)]
    path.write_text("".join(mark.join(row) + "\n" for row in rows), newline="")


def write_json(path: Path, columns: list[list[str]]) -> None:
    rows = zip(*columns, strict=True)
    lines = [", ".join(f'"c{i}": {value}' for i, value in enumerate(row) if value) for row in rows]
    path.write_text("".join(f"{{{line}}}\n" for line in lines))


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["csv", "json_lines"])
def test_columns_of_random_values_are_those_of_spark(spark_rows, tmp_path, name, seed):
    choose = random.Random(seed)
    values, write = (CSV_VALUES, write_csv) if name == "csv" else ([*JSON_VALUES, ""], write_json)
    path = tmp_path / ("t.csv" if name == "csv" else "t.jsonl")
    alone = [[value] * 6 for value in values] if seed == 0 else []
    columns = alone + [choose.choices(choose.sample(values, choose.randint(1, 3)), k=6) for _ in range(250)]
    kept = certain_columns(path, name, write, columns)
    assert len(kept) > 60
    write(path, [["k"] * 6 if name == "csv" else ["1"] * 6, *kept])
    require_equal(path, name, spark_rows)


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(3))
def test_lines_of_random_form_are_those_of_spark(spark_rows, tmp_path, seed):
    choose = random.Random(seed)
    n_read = 0
    for number in range(12):
        mark = choose.choice(",;\t|")
        columns = [choose.choice((["7", "8.5", "-3"], ["cat", "a-b", '"x y"'], ["5", "oops", ""])) for _ in range(3)]
        columns.append(choose.choice((["1", "2", "3"], ["cat", f'"a{mark}b"', '""'], ['"1"', "true", " "])))
        lines = [
            mark.join(choose.choice((column, column[:1])[choose.random() < 0.5]) for column in columns)
            for _ in range(9)
        ]
        lines[0] = mark.join(f"{column[0]}" for column in columns)
        odd = {"end": mark, "more": f"{mark}x{mark}y", "blank": "\n", "blanks": "\n  \t", "quote": '"', "none": ""}
        for ending in choose.choices(list(odd.values()), k=2):
            lines[choose.randrange(1, 9)] += ending
        if choose.random() < 0.5:
            lines[choose.randrange(1, 9)] = choose.choice(("cat", f"1{mark}", mark * 3, mark * 4, "#"))
        header = mark.join(choose.choice((("a", "b", "C", "d e"), ('"a"', "b(1)", '"c.d"', "é"))))
        text = choose.choice(("\n", "\r\n")).join([header, *lines]) + choose.choice(("", "\n", "\r\n", "\n\n"))
        path = tmp_path / f"{number}.csv{choose.choice(('', '.gz'))}"
        content = choose.choice((b"", b"\xef\xbb\xbf")) + text.encode()
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
        if small_table(path, "csv") is not None:
            require_equal(path, "csv", spark_rows)
            n_read += 1
    assert n_read > 5
