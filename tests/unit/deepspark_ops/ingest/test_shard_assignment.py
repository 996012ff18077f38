"""Bounds of shards: the same in every run, nothing lost and nothing twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepspark_ops.ingest.shard_assignment import shard_bounds, shards_for_cores


@given(st.integers(0, 500), st.integers(1, 60), st.integers(1, 9))
def test_shards_cover_all_samples_evenly(n_samples, largest, least):
    bounds = shard_bounds(n_samples, largest, least=least)
    sizes = [stop - start for start, stop in bounds]
    assert [start for start, _ in bounds] == [0, *(stop for _, stop in bounds[:-1])][: len(bounds)]
    assert sum(sizes) == n_samples
    assert len(bounds) == min(max(-(-n_samples // largest), least), n_samples)
    assert all(0 < size <= largest for size in sizes)
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


def test_every_core_of_four_has_a_task_from_500_images_on_and_of_eight_from_1000():
    assert [shards_for_cores(n) for n in (1, 499, 500, 999, 1000, 10**7)] == [1, 1, 4, 7, 8, 8]


@pytest.mark.parametrize(("n", "largest", "expected"), [(0, 5, []), (1, 5, [(0, 1)]), (6, 5, [(0, 3), (3, 6)])])
def test_shard_bounds_examples(n, largest, expected):
    assert shard_bounds(n, largest) == expected
