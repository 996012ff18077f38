"""Which small files are read without Spark, and their rows. The integration test of this name compares with Spark."""

import gzip

import pyarrow as pa
import pytest

from deepspark_ops.errors import DataError
from deepspark_ops.ingest.files import archive
from deepspark_ops.ingest.files.untyped_rows import CORRUPT, numbers_share
from deepspark_ops.ingest.tables.small_files import small_table


def test_a_csv_file_is_read_once_in_the_types_of_spark(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_bytes(
        b'\xef\xbb\xbf"n";x;when;"ok";who (id);few;blank\r\n'
        b'007;-0;2024-01-01;true;"Oe; A";oops;\r\n\r\n'
        b'"2";1.5;;FALSE;T;NA;""\r\n'
        b"3;1e5;2024-01-01 10:00:00;;7590-VHVEG;9\r\n"
    )
    opened = []
    real = archive.open_regular
    monkeypatch.setattr(archive, "open_regular", lambda file: opened.append(file) or real(file))
    rows = small_table(path, "csv")
    assert len(opened) <= 3  # twice for the first bytes of a compressed file
    assert rows.schema.types == [pa.int64(), pa.float64(), pa.date32(), pa.bool_(), *[pa.string()] * 4]
    assert rows.schema.names == ["n", "x", "when", "ok", "who (id)", "few", "blank", CORRUPT]
    assert rows.drop_columns(["when"]).to_pylist() == [
        {"n": 7, "x": 0.0, "ok": True, "who (id)": "Oe; A", "few": "oops", "blank": None, CORRUPT: None},
        {"n": 2, "x": 1.5, "ok": False, "who (id)": "T", "few": "NA", "blank": None, CORRUPT: None},
        {"n": 3, "x": 1e5, "ok": None, "who (id)": "7590-VHVEG", "few": "9", "blank": None}
        | {CORRUPT: "3;1e5;2024-01-01 10:00:00;;7590-VHVEG;9"},
    ]
    path.write_text("a,b\n" + "1,2\n" * 9 + "oops,2\n")
    assert numbers_share(small_table(path, "csv").schema.field("a")) == 0.9


def test_json_lines_are_read_in_the_types_and_order_of_spark(tmp_path):
    path = tmp_path / "t.jsonl.gz"
    lines = '{"b": 1, "a": [1, 2.5]}\n\n{"a": [], "T": true, "b": 2.5, "s": "\\u00e9"}\r\n{}\n'
    path.write_bytes(gzip.compress(lines.encode()))
    rows = small_table(path, "json_lines")
    assert rows.schema.types == [pa.bool_(), pa.list_(pa.float64()), pa.float64(), pa.string()]
    assert rows.to_pydict() == {
        "T": [None, True, None],
        "a": [[1.0, 2.5], [], None],
        "b": [1.0, 2.5, None],
        "s": [None, "é", None],
    }
    path.write_bytes(gzip.compress(b"{}\n{}\n"))
    with pytest.raises(DataError, match=r"t\.jsonl\.gz: the table has no rows"):
        small_table(path, "json_lines")


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,T12\n", "a,b\n1,12:30\n", "a,b\n1,1.5e1\n", "a,b\n1,1.\n", "a,b\n1,99999999999999999999\n",
        "a,b\n1,2d\n", "a,b\n1,2024-01-01\n1,2024\n", "a,b\n1,2024-02-30\n", "a,b\n1,+Infinity\n", "a,b\n1, NaN\n",
        "a,b\n1,3x\n", "a,b\n1,-\n", 'a,b\n1,"x""y"\n', 'a,b\n1,"x\ny"\n', 'a,b\n1,x"y\n', "a,b\n1,x\\y\n",
        "a,b\n1,caf\xe9\n", "a,b\n1,x\ry\n", "a,b\n1,2\na,b\n", "a,A\n1,2\n", "a,_corrupt_record\n1,2\n", "a,b\n1,\0\n",
        "a,b\n1,\xa0\n",
        '{"a": 1, "a": 2}', '{"a": 1}\n{"A": 2}', '{"a": 1', '{"a": {"b": 1}}', '{"a": ["x"]}', '{"a": [null]}',
        '{"": 1}', '{"a": 1}\n{"a": "1"}', '{"a": true}\n{"a": 1}', '{"a": NaN}', '{"a": 1e400}', "[1]",
        '{"a": 9223372036854775808}', '{"a": "\\ud800"}', '{"_corrupt_record": "x"}', '{"a": [true]}',
    ],
)  # fmt: skip
def test_a_file_with_a_value_of_which_spark_may_read_another_is_for_spark(tmp_path, text):
    path = tmp_path / "t"
    path.write_bytes(text.encode("latin-1"))
    assert small_table(path, "json_lines" if text[0] in "{[" else "csv") is None


def test_large_and_other_files_are_for_spark(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n" * 2**20)
    (tmp_path / "t.zip").write_bytes(gzip.compress(b"a,b\n1,2\n"))  # Spark unpacks files by their names
    for name in ("t.csv", "t.zip", "."):
        assert small_table(tmp_path / name, "csv") is None
    assert small_table(tmp_path / "t.csv", "orc") is None
