"""Cutting runs into shards: every row once, in the order of keys, in shards of equal size."""

import numpy as np
import pytest

from deepspark_ops.ingest.tables.table_shards import MAX_SHARD_BYTES, cut_runs, rows_per_shard


@pytest.mark.parametrize("n_keys", [3, 50, 10**6])
@pytest.mark.parametrize("most", [1, 7, 40, 1000])
def test_ranges_are_those_of_all_keys_sorted(n_keys, most):
    rng = np.random.default_rng(n_keys + most)
    runs = [np.sort(rng.integers(0, n_keys, size).astype(np.uint64)) for size in (60, 0, 1, 37)]
    expected = np.sort(np.concatenate(runs))
    shards = cut_runs(runs, most)
    found = [np.sort(np.concatenate([run[a:b] for run, (a, b) in zip(runs, shard, strict=True)])) for shard in shards]
    np.testing.assert_array_equal(np.concatenate(found), expected)
    sizes = [len(shard) for shard in found]
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1
    for place in range(len(runs)):
        edges = [shard[place] for shard in shards]
        assert [start for start, _ in edges[1:]] == [stop for _, stop in edges[:-1]]


def test_a_shard_of_wide_rows_is_bounded():
    assert rows_per_shard(10_000, 200) == 10_000
    assert rows_per_shard(10_000, 100_000) == MAX_SHARD_BYTES // 400_000
    assert rows_per_shard(10_000, 10**9) == 1
