import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deepspark_ops.shards.files.parquet_output import BYTES_WRITTEN, arrow_column, parquet_output, vectors

SCHEMA = pa.schema([("id", pa.string()), ("fc7", pa.list_(pa.float32())), ("error", pa.string())])


def test_row_groups_end_at_their_bytes_and_nothing_is_lost(tmp_path):
    path = tmp_path / "f.parquet"
    wide = np.random.default_rng(0).random(2**17, np.float32)  # 512 KiB
    with parquet_output(path, SCHEMA) as output:
        for number in range(70):
            output.add({"id": [str(number), "bad"], "fc7": [wide * number, None], "error": [None, "damaged"]})
    file = pq.ParquetFile(path)
    groups = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
    assert (len(groups), sum(groups)) == (2, 140)
    assert (groups[0] // 2 - 1) * wide.nbytes < BYTES_WRITTEN <= groups[0] // 2 * wide.nbytes * 1.01
    rows = file.read()
    assert rows["id"].to_pylist()[::2] == [str(number) for number in range(70)]
    np.testing.assert_array_equal(rows["fc7"][138].as_py(), wide * np.float32(69))
    assert (rows["fc7"][139].as_py(), rows["error"][139].as_py()) == (None, "damaged")


def test_a_failure_leaves_no_file(tmp_path):
    def write():
        with parquet_output(tmp_path / "f.parquet", SCHEMA) as output:
            output.add({"id": ["a"], "fc7": [np.zeros(3, np.float32)], "error": [None]})
            raise KeyError

    with pytest.raises(KeyError):
        write()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shape", [(3, 2), (1, 5), (0, 4), (3, 0)])
def test_vectors_are_lists(shape):
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    assert vectors(values).to_pylist() == values.tolist()
    assert vectors(values[::-1]).to_pylist() == values[::-1].tolist()


def test_columns_of_all_kinds_of_values():
    numbers = pa.list_(pa.float32())
    assert arrow_column(np.float64([[1, 2], [3, 4]]), numbers).to_pylist() == [[1, 2], [3, 4]]
    assert arrow_column([np.float32([1]), None], numbers).to_pylist() == [[1], None]
    assert arrow_column(np.int64([1, 2]), pa.int64()).to_pylist() == [1, 2]
    assert arrow_column(["é", None, "c\udce9"], pa.string()).to_pylist() == ["é", None, "c?"]
    assert arrow_column(pa.array([None, 2]), pa.int64()).to_pylist() == [None, 2]
    assert arrow_column(np.int64([[1], [2]]), pa.list_(pa.int64())).type == pa.list_(pa.int64())
