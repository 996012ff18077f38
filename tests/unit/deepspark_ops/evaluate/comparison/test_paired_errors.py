"""Errors of two nets on the same samples, against loops and scipy."""

import numpy as np
import pytest
from scipy import stats

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.comparison.paired_errors import paired_errors
from deepspark_ops.evaluate.sample_scores import ScoredSamples
from deepspark_ops.evaluate.scores import SampleLosses


def scored_samples(losses, *, index=None, task="regression"):
    losses = np.asarray(losses, np.float64)
    index = np.arange(len(losses)) if index is None else np.asarray(index)
    answers = SampleLosses(index.astype(np.int64), losses)
    return ScoredSamples("sha256:d", "sha256:w", 0, answers, np.zeros(len(losses), np.uint64), task=task)


def test_counts_means_and_the_largest_differences_are_those_of_a_loop():
    random = np.random.default_rng(3)
    mine, second = random.exponential(1.0, 500).round(2), random.exponential(1.1, 500).round(2)
    index = np.arange(500) * 3  # others do not count
    paired = paired_errors(scored_samples(mine, index=index), scored_samples(second, index=index), most=5)
    rows = list(zip(index.tolist(), mine.tolist(), second.tolist(), strict=True))
    assert paired.n_first == sum(a < b for _, a, b in rows)
    assert paired.n_second == sum(b < a for _, a, b in rows)
    listed = [(sample.index, sample.first, sample.second) for sample in paired.first_better]
    assert listed == sorted(rows, key=lambda row: (-(row[2] - row[1]), row[0]))[:5]
    listed = [(sample.index, sample.first, sample.second) for sample in paired.second_better]
    assert listed == sorted(rows, key=lambda row: (-(row[1] - row[2]), row[0]))[:5]
    assert paired.p == pytest.approx(stats.binomtest(paired.n_first, paired.n_first + paired.n_second).pvalue)
    more = second - mine
    assert paired.interval == pytest.approx(stats.norm.interval(0.95, more.mean(), stats.sem(more)), rel=1e-6)
    assert (paired.first, paired.second) == (pytest.approx(mine.mean()), pytest.approx(second.mean()))


def test_samples_with_a_picture_are_named_where_there_are_any():
    mine, second = scored_samples([0.0, 0.0, 0.0, 9.0]), scored_samples([3.0, 2.0, 1.0, 0.0])
    paired = paired_errors(mine, second, pictured={1, 2})
    assert [sample.index for sample in paired.first_better] == [1, 2]
    assert paired.second_better == ()
    assert paired.n_second == 1


def test_equal_nets_and_a_single_sample():
    same = paired_errors(scored_samples([1.0, 2.0]), scored_samples([1.0, 2.0]))
    assert (same.n_first, same.n_second, same.first_better, same.second_better, same.p) == (0, 0, (), (), 1.0)
    assert paired_errors(scored_samples([1.0]), scored_samples([2.0])).interval is None
    with pytest.raises(DataError, match="not the same ones"):
        paired_errors(scored_samples([1.0, 2.0]), scored_samples([1.0]))
