"""The split of a record by the hash of its name: the same in every run, whatever the other records."""

import hashlib
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepspark_ops.ingest.selection.splits import split_by_hash
from deepspark_ops.shards.manifest import SPLITS

NAMES = [f"img/{i}.jpg" for i in range(2000)]


def split_off_test(names, *, fraction, seed, validation=0.0):
    return split_by_hash(names, {"test": fraction, "validation": validation}, seed) == SPLITS.index("test")


def slow_side(name, fraction, seed):
    """Written from the docstring: the hash as a number in [0, 1) is compared with the share."""
    value = int(hashlib.blake2b(name.encode(), digest_size=8, key=str(seed).encode()).hexdigest(), 16)
    return Fraction(value, 2**64) < Fraction(fraction)


@pytest.mark.parametrize(("fraction", "seed"), [(0.2, 1), (0.2, 2), (0.5, 1), (0.9, 33)])
def test_side_is_that_of_the_hash_and_the_share_is_about_right(fraction, seed):
    chosen = split_off_test(NAMES, fraction=fraction, seed=seed)
    assert chosen.tolist() == [slow_side(name, fraction, seed) for name in NAMES]
    spread = (len(NAMES) * fraction * (1 - fraction)) ** 0.5
    assert abs(chosen.sum() - fraction * len(NAMES)) < 4 * spread


def test_choice_depends_on_seed_and_name_not_on_order():
    chosen = split_off_test(NAMES, fraction=0.2, seed=1)
    np.testing.assert_array_equal(split_off_test(NAMES[::-1], fraction=0.2, seed=1)[::-1], chosen)
    assert (split_off_test(NAMES, fraction=0.2, seed=2) != chosen).any()


def test_choice_is_this_one_in_every_version():
    names = [str(i) for i in range(10)]
    assert np.flatnonzero(split_off_test(names, fraction=0.3, seed=7)).tolist() == [2, 7]


@given(st.sets(st.integers(0, 3000)), st.sets(st.integers(0, 3000)))
def test_no_record_changes_sides_when_others_are_added_or_taken_away(old_names, new_names):
    first, second = (
        dict(zip(names, split_off_test([str(name) for name in names], fraction=0.2, seed=1), strict=True))
        for names in (sorted(old_names), sorted(new_names))
    )
    assert all(first[name] == second[name] for name in old_names & new_names)


def test_a_larger_share_adds_to_the_test_set():
    small, large = (split_off_test(NAMES, fraction=share, seed=1) for share in (0.1, 0.3))
    assert (large[small]).all()


def test_a_validation_set_comes_out_of_the_training_set_alone():
    without = split_by_hash(NAMES, {"test": 0.2}, 1)
    split_numbers = split_by_hash(NAMES, {"test": 0.2, "validation": 0.1}, 1)
    is_validation = split_numbers == SPLITS.index("validation")
    assert abs(is_validation.sum() - 200) < 4 * (2000 * 0.1 * 0.9) ** 0.5
    np.testing.assert_array_equal(split_numbers[~is_validation], without[~is_validation])
    assert (without[is_validation] == SPLITS.index("train")).all()
    slow = [slow_side(name, Fraction(3, 10), 1) and not slow_side(name, Fraction(2, 10), 1) for name in NAMES]
    assert is_validation.tolist() == slow


def test_no_share_and_no_records():
    assert not split_off_test(NAMES, fraction=0.0, seed=1).any()
    assert split_off_test([], fraction=0.5, seed=1).shape == (0,)


def test_records_of_one_name_stay_together():
    chosen = split_off_test(["a", "b", "a", "c", "a"], fraction=0.5, seed=1)
    assert len(set(chosen[[0, 2, 4]].tolist())) == 1
