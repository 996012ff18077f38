"""The split of a record by the hash of its name: the same in every run, whatever the other records."""

import hashlib
from fractions import Fraction

import numpy as np
import pytest

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


def test_choice_is_this_one_in_every_version():
    names = [str(i) for i in range(10)]
    assert np.flatnonzero(split_off_test(names, fraction=0.3, seed=7)).tolist() == [2, 7]


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
