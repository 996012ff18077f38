"""Hashes of rows: fixed for all time, different for different rows, evenly spread."""

import numpy as np
import pyarrow as pa
import pytest

from deepspark_ops.ingest.selection.row_hash import combined, hash_rows, mixed
from deepspark_ops.ingest.selection.splits import splits_of_hashes
from deepspark_ops.ingest.tables.columns import hashes_of
from deepspark_ops.shards.manifest import SPLITS


def slow_splitmix(state: int) -> int:
    """Steele, Lea, Flood 2014: the next number of the generator."""
    mask = 2**64 - 1
    value = (state + 0x9E3779B97F4A7C15) & mask
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
    return value ^ (value >> 31)


def test_numbers_are_those_of_splitmix64():
    states = np.array([0, 1, 2**63, 2**64 - 1], np.uint64)
    assert mixed(states).tolist() == [slow_splitmix(int(state)) for state in states]
    assert slow_splitmix(0) == 0xE220A8397B1DCDAF  # as published


def test_a_rows_hash_never_changes():
    """A change here moves samples between training and test set of every table."""
    rows = np.array([[1.5, -2.0], [0.0, np.nan]], np.float32)
    assert [f"{value:x}" for value in hash_rows(rows).tolist()] == ROWS
    assert [f"{value:x}" for value in hashes_of(pa.array(["", "a", "kunde 7"])).tolist()] == TEXTS


ROWS = ["50256ec09cf80948", "47145a0b97f3e800"]
TEXTS = ["a706dd2f4d197e6f", "4fc133fa597e9f1", "4f2d4faa5f91c42e"]


def test_texts_are_told_apart_wherever_they_stand():
    texts = [f"{i}" for i in range(20_000)] + ["ab", "ba", "a", "aa", "", "b"]
    hashes = hashes_of(pa.array(texts))
    assert len(set(hashes.tolist())) == len(texts)
    np.testing.assert_array_equal(hashes_of(pa.array(texts).slice(500, 900)), hashes[500:1400])
    np.testing.assert_array_equal(hashes_of(pa.array(range(20_000))), hashes[:20_000])
    np.testing.assert_array_equal(hashes_of(pa.array([None, "ab"])), hashes[[-2, -6]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_few_digits_are_told_apart(dtype):
    rows = np.stack(np.meshgrid(*[np.arange(40.0)] * 3), axis=-1).reshape(-1, 3).astype(dtype)
    hashes = hash_rows(rows)
    assert len(set(hashes.tolist())) == len(rows)
    np.testing.assert_array_equal(hash_rows(rows[1000:1100]), hashes[1000:1100])
    assert hash_rows(rows[:, ::-1])[1] != hashes[1]


def test_every_nan_is_the_same():
    rows = np.zeros((2, 2), np.float32)
    rows.view(np.uint32)[:, 1] = [0x7FC00000, 0xFFC01234]
    assert len(set(hash_rows(rows).tolist())) == 1


def test_shares_are_met_and_a_larger_one_only_adds():
    hashes = hash_rows(np.arange(50_000, dtype=np.float32)[:, None])
    few, more, other, none = (
        splits_of_hashes(mixed(hashes, seed), {"test": share}) == SPLITS.index("test")
        for share, seed in ((0.2, 1), (0.3, 1), (0.2, 2), (0.0, 1))
    )
    assert abs(few.mean() - 0.2) < 0.01
    assert not (few & ~more).any()
    assert abs((few & other).mean() - 0.04) < 0.01
    assert not none.any()


def test_order_of_parts_counts():
    first, second = hash_rows(np.ones((1, 1), np.float32)), hash_rows(np.zeros((1, 1), np.float32))
    assert combined(first, second) != combined(second, first)
