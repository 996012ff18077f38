"""Who goes where: exact shares, the same in every run, nothing lost and nothing twice."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepspark_ops.ingest.shard_assignment import sample_order, shard_bounds, split_off_test

LABELS = np.repeat([0, 1, 2, 5], [178, 20, 5, 1])
NAMES = [f"img/{i}.jpg" for i in range(len(LABELS))]


def test_every_label_gives_its_rounded_share():
    chosen = split_off_test(LABELS, NAMES, fraction=0.2, seed=1)
    assert np.bincount(LABELS[chosen], minlength=6).tolist() == [36, 4, 1, 0, 0, 0]


def test_choice_depends_on_seed_and_name_not_on_order():
    chosen = split_off_test(LABELS, NAMES, fraction=0.2, seed=1)
    again = split_off_test(LABELS[::-1], NAMES[::-1], fraction=0.2, seed=1)
    np.testing.assert_array_equal(again[::-1], chosen)
    assert (split_off_test(LABELS, NAMES, fraction=0.2, seed=2) != chosen).any()


def test_choice_is_this_one_in_every_version():
    labels, names = np.zeros(10, np.int64), [str(i) for i in range(10)]
    assert np.flatnonzero(split_off_test(labels, names, fraction=0.3, seed=7)).tolist() == [2, 7, 8]


def test_most_records_keep_their_side_when_others_are_added():
    labels, names = np.zeros(1000, np.int64), [str(i) for i in range(1100)]
    before = split_off_test(labels, names[:1000], fraction=0.2, seed=1)
    after = split_off_test(np.zeros(1100, np.int64), names, fraction=0.2, seed=1)[:1000]
    assert (before != after).mean() < 0.02


def test_no_share_and_no_records():
    assert not split_off_test(LABELS, NAMES, fraction=0.0, seed=1).any()
    assert split_off_test(LABELS[:0], [], fraction=0.5, seed=1).shape == (0,)


def test_equal_names_are_separate_records():
    chosen = split_off_test(np.zeros(4, np.int64), ["a", "a", "a", "a"], fraction=0.5, seed=1)
    assert chosen.sum() == 2


def test_order_is_a_fixed_permutation_or_the_sources():
    positions = np.arange(10, 60)
    shuffled = sample_order(positions, shuffle=True, seed=3)
    assert sorted(shuffled.tolist()) == positions.tolist() != shuffled.tolist()
    np.testing.assert_array_equal(sample_order(positions, shuffle=True, seed=3), shuffled)
    np.testing.assert_array_equal(sample_order(positions, shuffle=False, seed=3), positions)


@given(st.integers(0, 500), st.integers(1, 60))
def test_shards_cover_all_samples_evenly(n_samples, largest):
    bounds = shard_bounds(n_samples, largest)
    sizes = [stop - start for start, stop in bounds]
    assert [start for start, _ in bounds] == [0, *(stop for _, stop in bounds[:-1])][: len(bounds)]
    assert sum(sizes) == n_samples
    assert len(bounds) == -(-n_samples // largest)
    assert all(0 < size <= largest for size in sizes)
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


@pytest.mark.parametrize(("n", "largest", "expected"), [(0, 5, []), (1, 5, [(0, 1)]), (6, 5, [(0, 3), (3, 6)])])
def test_shard_bounds_examples(n, largest, expected):
    assert shard_bounds(n, largest) == expected
