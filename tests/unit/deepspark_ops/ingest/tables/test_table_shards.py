"""Cutting runs into shards: every row once, in the order of keys, in shards of equal size."""

from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.ingest.shard_assignment import shard_bounds
from deepspark_ops.ingest.shard_task import NewShard
from deepspark_ops.ingest.tables.row_files import RowKeys, Run
from deepspark_ops.ingest.tables.split_rows import SplitRows
from deepspark_ops.ingest.tables.table_shards import MAX_SHARD_BYTES, row_task, rows_per_shard


@pytest.mark.parametrize("n_keys", [3, 50, 10**6])
@pytest.mark.parametrize("most", [1, 7, 40, 1000])
def test_pieces_are_those_of_all_keys_sorted(n_keys, most):
    rng = np.random.default_rng(n_keys + most)
    keys = [np.sort(rng.integers(0, n_keys, size).astype(np.uint64)) for size in (60, 0, 1, 37)]
    rows = split_rows(keys)
    order = rows.stored_order(shuffle=True, seed=1)
    expected = sorted((key, run, row) for run, of_run in enumerate(keys) for row, key in enumerate(of_run.tolist()))
    at = 0
    for start, stop in shard_bounds(len(rows), most):
        task = row_task(NewShard("train", 0, Path("x")), rows, order[start:stop], start)
        assert task.n_records == stop - start
        held = sorted(
            (int(keys[run.part][row]), run.part, row) for run, first, end in task.pieces for row in range(first, end)
        )
        assert held == expected[at : at + len(held)]
        at += len(held)
    assert at == len(expected)


def split_rows(keys) -> SplitRows:
    """Rows of runs whose number is their part."""
    none = [np.zeros(len(key), np.uint64) for key in keys]
    of_runs = [
        RowKeys(key, zeros, zeros, zeros, zeros.astype(np.float64)) for key, zeros in zip(keys, none, strict=True)
    ]
    return SplitRows(
        folder=Path("x"),
        recipe=None,
        runs=[Run("x", "train", 0, len(key), 0, 0, 0, part) for part, key in enumerate(keys)],
        keys=of_runs,
        labels=[held.label for held in of_runs],
        rows=[np.arange(len(key)) for key in keys],
        repeats=[np.zeros(len(key), np.int32) for key in keys],
    )


def test_a_shard_of_wide_rows_is_bounded():
    assert rows_per_shard(10_000, 200) == 10_000
    assert rows_per_shard(10_000, 100_000) == MAX_SHARD_BYTES // 400_000
    assert rows_per_shard(10_000, 10**9) == 1
