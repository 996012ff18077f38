"""Stable samples and balanced classes, against loops written from what the options promise."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepspark_ops.ingest.selection.row_hash import repeats
from deepspark_ops.ingest.selection.sampling import balanced, stable_sample

LABELS = st.lists(st.integers(0, 4), min_size=1, max_size=60)


def hashes_of(labels, seed=0):
    return np.random.default_rng(seed).permutation(len(labels)).astype(np.uint64)


@given(LABELS, st.integers(1, 70))
def test_a_sample_has_each_class_by_its_share_and_the_lowest_hashes(labels, n):
    labels, hashes = np.array(labels), hashes_of(labels)
    chosen = stable_sample(labels, hashes, n).tolist()
    assert len(chosen) == min(n, len(labels)) == len(set(chosen))
    assert chosen == sorted(chosen)
    for label, count in Counter(labels.tolist()).items():
        mine = [i for i in chosen if labels[i] == label]
        assert set(mine) == set(sorted(np.flatnonzero(labels == label), key=lambda i: hashes[i])[: len(mine)])
        n_classes = len(set(labels.tolist()))
        # The largest remainder is within one of the share; a class without a sample takes one from the others.
        assert abs(len(mine) - min(n, len(labels)) * count / len(labels)) < 1 + (n_classes if n >= n_classes else 0)
        assert mine or n < n_classes


def test_shares_without_rare_classes_are_those_of_largest_remainder():
    labels = np.repeat([0, 1, 2], [50, 30, 20])
    counted = Counter(labels[stable_sample(labels, hashes_of(labels), 33)].tolist())
    assert counted == {0: 16, 1: 10, 2: 7}  # 16.5, 9.9, 6.6: the two with the largest remainders are rounded up


def test_a_larger_sample_holds_the_smaller_and_a_grown_source_changes_little():
    labels = np.arange(1000) % 5
    hashes = np.random.default_rng(1).integers(0, 2**63, 1100).astype(np.uint64)
    small, large = (set(stable_sample(labels, hashes[:1000], n).tolist()) for n in (100, 200))
    assert small < large
    grown = set(stable_sample(np.arange(1100) % 5, hashes, 100).tolist())
    assert len(grown & small) > 75  # about a tenth of the new ones come in


@given(LABELS)
def test_undersampling_takes_as_many_of_each_class_as_the_smallest_has(labels):
    labels, hashes = np.array(labels), hashes_of(labels)
    chosen = balanced(labels, hashes, "undersample").tolist()
    smallest = min(Counter(labels.tolist()).values())
    expected = [
        i for label in set(labels.tolist())
        for i in sorted(np.flatnonzero(labels == label).tolist(), key=lambda i: hashes[i])[:smallest]
    ]  # fmt: skip
    assert chosen == sorted(expected)


@given(LABELS)
def test_oversampling_repeats_until_each_class_has_as_many_as_the_largest(labels):
    labels, hashes = np.array(labels), hashes_of(labels)
    counts = Counter(balanced(labels, hashes, "oversample").tolist())
    largest = max(Counter(labels.tolist()).values())
    assert set(counts) == set(range(len(labels)))
    for label in set(labels.tolist()):
        mine = sorted(np.flatnonzero(labels == label).tolist(), key=lambda i: hashes[i])
        times = [counts[i] for i in mine]
        assert sum(times) == largest
        assert times == sorted(times, reverse=True)
        assert max(times) - min(times) <= 1


@pytest.mark.parametrize("how", ["oversample", "undersample", "none"])
def test_nothing_stays_nothing(how):
    assert balanced(np.empty(0, np.int64), np.empty(0, np.uint64), how).tolist() == []


@given(st.lists(st.integers(0, 5)))
def test_repeats_count_what_stood_before(positions):
    expected = [positions[:i].count(position) for i, position in enumerate(positions)]
    assert repeats(np.array(positions, np.int64)).tolist() == expected
