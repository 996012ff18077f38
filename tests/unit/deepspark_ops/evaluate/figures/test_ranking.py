import re

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.figures.ranking import MAX_CURVE_POINTS, RankingSum, rank_counts
from deepspark_ops.evaluate.figures.threshold_counts import ThresholdSum
from tests.reference.slow_figures import slow_average_precision, slow_roc_auc
from tests.unit.deepspark_ops.evaluate.figures.batched_sum import sum_in_batches


def scores_and_targets(n, n_classes, seed, *, distinct=None):
    rng = np.random.default_rng(seed)
    targets = rng.random((n, n_classes)) < 0.3
    scores = np.clip(rng.beta(0.3, 0.3, (n, n_classes)) * 0.7 + targets * 0.2, 0, 1)
    return (np.round(scores * distinct) / distinct if distinct else scores), targets


@pytest.mark.parametrize("distinct", [None, 7])
def test_exact_figures_are_those_of_the_definitions(distinct):
    scores, targets = scores_and_targets(120, 3, 1, distinct=distinct)
    result = sum_in_batches(RankingSum(scores.shape[1]), scores, targets).result()
    for at, ranked in enumerate(result.classes):
        column, truth = scores[:, at].tolist(), targets[:, at].tolist()
        assert ranked.roc_auc == pytest.approx(slow_roc_auc(column, truth), abs=1e-12)
        assert ranked.average_precision == pytest.approx(slow_average_precision(column, truth), abs=1e-12)
        assert (ranked.roc_auc_within, ranked.average_precision_within) == (0.0, 0.0)
        u = mannwhitneyu(scores[targets[:, at], at], scores[~targets[:, at], at]).statistic
        assert ranked.roc_auc == pytest.approx(u / (ranked.positives * ranked.negatives), abs=1e-12)
    everything, truth = scores.ravel().tolist(), targets.ravel().tolist()
    assert result.micro.roc_auc == pytest.approx(slow_roc_auc(everything, truth), abs=1e-12)
    assert result.micro.average_precision == pytest.approx(slow_average_precision(everything, truth), abs=1e-12)
    assert result.macro_roc_auc == pytest.approx(np.mean([ranked.roc_auc for ranked in result.classes]), abs=1e-15)
    assert result.macro_average_precision == pytest.approx(
        np.mean([ranked.average_precision for ranked in result.classes]), abs=1e-15
    )


@pytest.mark.parametrize("is_probability", [True, False])
@pytest.mark.parametrize("n_classes", [1, 40])
def test_binned_figures_are_within_their_bounds(is_probability, n_classes):
    scores, targets = scores_and_targets(400, n_classes, 2)
    scores = scores if is_probability else (scores - 0.5) * 1e4
    exact = sum_in_batches(RankingSum(scores.shape[1], is_probability=is_probability), scores, targets).result()
    binned = sum_in_batches(
        RankingSum(scores.shape[1], is_probability=is_probability, most_exact=10), scores, targets
    ).result()
    for exact_row, other in zip([*exact.classes, exact.micro], [*binned.classes, binned.micro], strict=True):
        assert 0 <= other.roc_auc_within < 0.02
        assert abs(exact_row.roc_auc - other.roc_auc) <= other.roc_auc_within + 1e-12
        assert abs(exact_row.average_precision - other.average_precision) <= other.average_precision_within + 1e-12
        assert other.average_precision_within < 0.1


def test_bound_holds_where_a_bin_has_many():
    # Scores nearer to 0 than the width of a bin: all are in one bin.
    rng = np.random.default_rng(5)
    targets = rng.random((300, 1)) < 0.4
    scores = (rng.random((300, 1)) + targets) * 1e-12
    exact, binned = (
        sum_in_batches(RankingSum(scores.shape[1]), scores, targets).result().micro,
        sum_in_batches(RankingSum(scores.shape[1], most_exact=1), scores, targets).result().micro,
    )
    assert binned.roc_auc == 0.5
    assert exact.roc_auc > 0.6
    assert abs(exact.roc_auc - binned.roc_auc) <= binned.roc_auc_within
    assert abs(exact.average_precision - binned.average_precision) <= binned.average_precision_within


@pytest.mark.parametrize("most_exact", [10_000, 100])
def test_batches_and_processes_do_not_matter(most_exact):
    scores, targets = scores_and_targets(200, 2, 3)
    total = sum_in_batches(RankingSum(scores.shape[1], most_exact=most_exact), scores, targets, batch=200)
    first = sum_in_batches(RankingSum(scores.shape[1], most_exact=most_exact), scores[120:], targets[120:])
    second = sum_in_batches(RankingSum(scores.shape[1], most_exact=most_exact), scores[:20], targets[:20])
    second.merge(sum_in_batches(RankingSum(scores.shape[1], most_exact=most_exact), scores[20:120], targets[20:120]))
    first.merge(second)
    assert first.result() == total.result()


@pytest.mark.parametrize("is_probability", [True, False])
def test_bins_ascend_with_the_score(is_probability):
    edges = [0.0, 1e-30, 1e-9, 0.1, 0.4999, 0.5, 0.5001, 0.9, 1 - 1e-9, 1.0]
    values = edges if is_probability else [-3e38, -7.0, -1e-20, -0.0, 0.0, 1e-20, 2.0, 3e38]
    total = ThresholdSum(1, is_probability=is_probability, most_exact=0)
    for value in values:
        total.add(np.array([[value]]), np.array([[True]]))
    counts = total.result(0)
    assert not counts.is_exact
    assert (np.diff(counts.thresholds) < 0).all()
    assert counts.positives.sum() == len(values)
    # A score is at least the threshold of its bin, and below the threshold of the next bin.
    ascending = counts.thresholds[::-1]
    for value in values:
        at = np.searchsorted(ascending, value, side="right") - 1
        assert at >= 0
        assert value >= ascending[at] - 1e-15


def test_curves_go_from_corner_to_corner_in_few_points():
    scores, targets = scores_and_targets(2000, 1, 4)
    ranked = sum_in_batches(RankingSum(scores.shape[1]), scores, targets).result().classes[0]
    assert ranked.roc[0] == (0.0, 0.0)
    assert ranked.roc[-1] == (1.0, 1.0)
    assert 50 < len(ranked.roc) <= MAX_CURVE_POINTS
    assert all(a[0] <= b[0] and a[1] <= b[1] for a, b in zip(ranked.roc, ranked.roc[1:], strict=False))
    thin = np.array(ranked.roc)
    assert np.trapezoid(thin[:, 1], thin[:, 0]) == pytest.approx(ranked.roc_auc, abs=0.005)
    assert len(ranked.precision_recall) <= MAX_CURVE_POINTS
    assert ranked.precision_recall[-1] == (1.0, pytest.approx(targets.mean()))


def test_labels_are_one_class_against_the_rest():
    scores, _ = scores_and_targets(60, 3, 6)
    labels = np.random.default_rng(7).integers(0, 3, 60)
    by_label, by_target = RankingSum(3), RankingSum(3)
    by_label.add_labels(scores, labels)
    by_target.add(scores, np.eye(3, dtype=bool)[labels])
    assert by_label.result() == by_target.result()


def test_a_class_without_samples_has_no_figures():
    total = RankingSum(2)
    total.add_labels(np.array([[0.6, 0.4], [0.9, 0.1]]), np.array([0, 0]))
    result = total.result()
    assert [ranked.roc_auc for ranked in result.classes] == [None, None]
    assert [ranked.average_precision for ranked in result.classes] == [1.0, None]
    assert (result.macro_roc_auc, result.macro_average_precision) == (None, 1.0)
    assert result.classes[0].roc == ()


def test_curves_are_kept_of_the_classes_that_are_ranked_worst():
    scores, targets = scores_and_targets(300, 4, 8)
    total = sum_in_batches(RankingSum(scores.shape[1]), scores, targets)
    areas = [ranked.roc_auc for ranked in total.result().classes]
    result = total.result(n_curves=2)
    assert [bool(ranked.roc) for ranked in result.classes] == [area in sorted(areas)[:2] for area in areas]
    assert result.micro.roc


def test_equal_scores_count_one_half():
    total = ThresholdSum(1, is_probability=True)
    total.add(np.full((4, 1), 0.5), np.array([[True], [False], [True], [False]]))
    ranked = rank_counts(total.result(0))
    assert (ranked.roc_auc, ranked.average_precision) == (0.5, 0.5)


@pytest.mark.parametrize("value", [np.nan, 1.5, -0.1])
def test_what_is_no_probability_is_named(value):
    message = f"sample 41: the score of class 1 is {value}; allowed: [0, 1], a probability"
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        RankingSum(2).add(np.array([[0.5, 0.5], [0.5, value]]), np.zeros((2, 2), bool), start=40)


def test_memory_does_not_grow_with_the_samples():
    total = ThresholdSum(1000, is_probability=True, most_exact=100)
    total.add(np.zeros((1, 1000)), np.zeros((1, 1000), bool))
    assert total._bins.nbytes <= 40 << 20
    assert total._kept == []
