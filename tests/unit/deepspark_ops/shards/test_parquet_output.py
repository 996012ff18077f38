import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deepspark_ops.predict.columns import numbers
from deepspark_ops.shards.parquet_output import BYTES_WRITTEN, parquet_output

SCHEMA = pa.schema([("id", pa.string()), ("fc7", numbers()), ("error", pa.string())])


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
