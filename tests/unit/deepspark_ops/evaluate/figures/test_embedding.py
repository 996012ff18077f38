from itertools import pairwise

import numpy as np
import pytest

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.figures.embedding import NeighbourSum, VerificationSum
from tests.reference.slow_figures import slow_neighbours, slow_roc_auc, slow_verification


def pairs(n, seed, decimals=8):
    rng = np.random.default_rng(seed)
    is_same = rng.random(n) < 0.4
    return np.round(rng.gamma(2.0, 1.0, n) + 1.5 * ~is_same, decimals), is_same


def verified(distances, is_same, batch=9, **options):
    total = VerificationSum(**options)
    for at in range(0, len(distances), batch):
        total.add(distances[at : at + batch], is_same[at : at + batch], start=at)
    return total


@pytest.mark.parametrize("decimals", [8, 0])
def test_verification_is_that_of_the_definitions(decimals):
    distances, is_same = pairs(140, 1, decimals)
    result = verified(distances, is_same).result()
    best, equal_error = slow_verification(distances.tolist(), is_same.tolist())
    assert result.best_accuracy == pytest.approx(best, abs=1e-12)
    assert result.equal_error_rate == pytest.approx(equal_error, abs=1e-9)
    assert result.ranked.roc_auc == pytest.approx(slow_roc_auc((-distances).tolist(), is_same.tolist()), abs=1e-12)
    assert (result.n_pairs, result.n_same) == (140, int(is_same.sum()))
    answered = distances <= result.best_threshold
    assert np.mean(answered == is_same) == pytest.approx(result.best_accuracy, abs=1e-12)


def test_binned_pairs_are_near():
    distances, is_same = pairs(5000, 2)
    exact, binned = verified(distances, is_same, 500).result(), verified(distances, is_same, 500, most_exact=9).result()
    assert binned.best_accuracy == pytest.approx(exact.best_accuracy, abs=0.01)
    assert binned.equal_error_rate == pytest.approx(exact.equal_error_rate, abs=0.01)
    assert binned.best_threshold == pytest.approx(exact.best_threshold, rel=0.1)


def test_pairs_of_two_processes_are_those_of_one():
    distances, is_same = pairs(100, 3)
    first = verified(distances[60:], is_same[60:])
    first.merge(verified(distances[:60], is_same[:60]))
    assert first.result() == verified(distances, is_same).result()


def test_distances_of_both_kinds_are_counted_in_the_same_bars():
    distances, is_same = pairs(1000, 4)
    counted = verified(distances, is_same).result().distances
    rounded = np.float32(distances).astype(np.float64)
    assert (counted.same.low, counted.same.width) == (counted.other.low, counted.other.width)
    for bars, of_kind in ((counted.same, rounded[is_same]), (counted.other, rounded[~is_same])):
        edges = bars.low + bars.width * np.arange(len(bars.counts) + 1)
        inside = [int(np.sum((low <= of_kind) & (of_kind < high))) for low, high in pairwise(edges)]
        assert list(bars.counts) == inside
        assert (bars.below, bars.above) == (int(np.sum(of_kind < edges[0])), int(np.sum(of_kind >= edges[-1])))
    assert 0 < sum(bars.below + bars.above for bars in (counted.same, counted.other)) <= 10  # the outermost 0.5 %


def test_perfect_and_one_sided_pairs():
    perfect = verified(np.array([0.1, 0.2, 0.8]), np.array([True, True, False])).result()
    assert (perfect.best_accuracy, perfect.best_threshold, perfect.equal_error_rate) == (1.0, 0.2, 0.0)
    different = verified(np.array([0.1, 0.2]), np.array([False, False])).result()
    assert (different.best_accuracy, different.best_threshold, different.equal_error_rate) == (1.0, None, None)
    assert sum(different.distances.same.counts) == 0
    assert sum(different.distances.other.counts) == 2


def vectors(n, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 12, n)
    labels[4] = 99  # alone
    return (rng.standard_normal((n, 3)) + labels[:, None] % 4).astype(np.float32), labels


def sum_of_rows(embeddings, labels, rows, **options):
    total = NeighbourSum(**options)
    for at in rows:
        total.add(embeddings[at : at + 1], labels[at : at + 1], start=at)
    return total


def test_neighbours_are_those_of_the_definition():
    embeddings, labels = vectors(90, 4)
    result = sum_of_rows(embeddings, labels, range(90)).result()
    assert result.recall_at_1 == pytest.approx(slow_neighbours(embeddings.tolist(), labels.tolist(), 1), abs=1e-12)
    assert result.recall_at_5 == pytest.approx(slow_neighbours(embeddings.tolist(), labels.tolist(), 5), abs=1e-12)
    assert (result.n_samples, result.n_compared, result.n_alone) == (90, 90, 1)
    assert result.recall_at_1 < result.recall_at_5


def test_a_bounded_sample_is_the_same_in_any_order():
    embeddings, labels = vectors(300, 5)
    total = NeighbourSum(most=40)
    total.add(embeddings, labels, start=0)
    first = sum_of_rows(embeddings, labels, range(299, 99, -1), most=40)
    first.merge(sum_of_rows(embeddings, labels, range(100), most=40))
    assert len(first._indices) == 40
    assert sorted(first._indices) == sorted(total._indices)
    assert first.result() == total.result()
    assert np.ptp(first._indices) > 200  # from all over


def test_blocks_are_no_border():
    embeddings, labels = vectors(600, 6)
    result = sum_of_rows(embeddings, labels, range(600)).result()
    assert result.recall_at_1 == pytest.approx(slow_neighbours(embeddings.tolist(), labels.tolist(), 1), abs=1e-12)


def test_bad_vectors_and_nothing():
    with pytest.raises(DataError, match=r"^sample 3: the net's vector is nan"):
        NeighbourSum().add(np.array([[np.nan]]), np.array([0]), start=3)
    with pytest.raises(DataError, match=r"^no pair to verify$"):
        VerificationSum().result()
    assert NeighbourSum().result().recall_at_1 is None
    single = NeighbourSum()
    single.add(np.zeros((1, 2)), np.array([3]), start=0)
    assert (single.result().n_alone, single.result().recall_at_1) == (1, None)
