import math
import re
import tracemalloc

import numpy as np
import pytest

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.figures.confusion import MOST_MATRIX_CLASSES
from deepspark_ops.evaluate.scores import (
    MOST_RANKED_CLASSES,
    SMALLEST_PROBABILITY,
    ScoreSum,
    accuracy_interval,
    softmax,
)
from tests.reference.slow_scores import slow_scores, slow_softmax


def random_case(*, n, n_classes, seed):
    rng = np.random.default_rng(seed)
    # Few distinct values, so that ties between classes occur in many rows.
    logits = rng.integers(-3, 4, size=(n, n_classes)).astype(np.float32)
    return softmax(logits), rng.integers(0, n_classes, size=n)


@pytest.mark.parametrize(("n", "n_classes", "batch"), [(97, 10, 97), (97, 10, 8), (40, 3, 7), (64, 30, 64), (5, 2, 1)])
@pytest.mark.parametrize("ignore_label", [None, 1])
def test_sum_over_batches_equals_slow_loop(n, n_classes, batch, ignore_label):
    probabilities, labels = random_case(n=n, n_classes=n_classes, seed=n + batch)
    total = ScoreSum(n_classes, worst=n, ignore_label=ignore_label)
    for start in range(0, n, batch):
        total.add(probabilities[start : start + batch], labels[start : start + batch])
    scores = total.result()

    expected = slow_scores(probabilities.tolist(), labels.tolist(), ignore_label)
    assert scores.top1 == pytest.approx(expected["top1"], abs=1e-12)
    assert scores.top5 == (pytest.approx(expected["top5"], abs=1e-12) if n_classes > 5 else None)
    assert scores.loss == pytest.approx(expected["loss"], rel=1e-12)
    assert scores.confusion.matrix.tolist() == expected["confusion"]
    mistakes = [(m.index, m.label, m.predicted, m.probability) for m in scores.mistakes]
    assert mistakes == expected["mistakes"]
    assert scores.n_samples + scores.n_ignored == n
    check_answers(scores.answers, probabilities.tolist(), labels.tolist(), ignore_label)


def check_answers(answers, rows, labels, ignore_label):
    counted = [index for index, label in enumerate(labels) if label != ignore_label]
    assert answers.index.tolist() == counted
    for at, index in enumerate(counted):
        row, label = rows[index], labels[index]
        reached = [k for k in range(len(row)) if k != label and row[k] >= row[label]]
        assert (answers.label[at], answers.rank[at]) == (label, len(reached))
        assert row[answers.predicted[at]] == (max(row[k] for k in reached) if reached else row[label])
        assert answers.loss[at] == pytest.approx(-math.log(max(row[label], SMALLEST_PROBABILITY)), rel=1e-12)


def test_confusion_has_true_class_by_row():
    total = ScoreSum(3)
    total.add(np.array([[0.1, 0.2, 0.7], [0.1, 0.2, 0.7]]), np.array([0, 0]))
    assert total.result().confusion.matrix.tolist() == [[0, 0, 2], [0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize(
    "n_classes",
    [MOST_MATRIX_CLASSES, MOST_MATRIX_CLASSES + 1, pytest.param(MOST_RANKED_CLASSES + 1, marks=pytest.mark.slow)],
)
def test_figures_of_many_classes_are_those_of_the_slow_loop(n_classes):
    rng = np.random.default_rng(n_classes)
    labels = rng.choice([0, 3, n_classes - 1], 40)
    rows = rng.dirichlet(np.full(n_classes, 0.05), 40)
    rows[:25, 5] = 0.9  # taken for class 5
    rows[25:32, labels[25:32]] = 1.0
    rows /= rows.sum(axis=1, keepdims=True)
    total, other = ScoreSum(n_classes, worst=3), ScoreSum(n_classes, worst=3)
    total.add(rows[:17], labels[:17])
    other.add(rows[17:], labels[17:], start=17)
    total.merge(other)
    scores, expected = total.result(), slow_scores(rows.tolist(), labels.tolist())
    cells = {(true, taken): times for true, row in enumerate(expected["confusion"]) for taken, times in enumerate(row)}
    wrong = [(-times, *cell) for cell, times in cells.items() if times and cell[0] != cell[1]]
    assert [(-pair.times, pair.label, pair.predicted) for pair in scores.confusion.pairs] == sorted(wrong)
    assert scores.confusion.correct.tolist() == [cells[label, label] for label in range(n_classes)]
    assert scores.confusion.support.tolist() == [sum(row) for row in expected["confusion"]]
    assert scores.confusion.predicted.tolist() == [sum(column) for column in zip(*expected["confusion"], strict=True)]
    assert scores.top1 == expected["top1"]
    assert scores.calibration is not None
    assert (scores.confusion.matrix is None, scores.ranking is None) == (
        n_classes > MOST_MATRIX_CLASSES,
        n_classes > MOST_RANKED_CLASSES,
    )


def test_memory_of_many_classes_does_not_grow_with_their_square():
    n_classes = 20_000
    tracemalloc.start()
    try:
        total = ScoreSum(n_classes)
        total.add(np.full((3, n_classes), 1 / n_classes), np.array([0, 7, n_classes - 1]))
        total.result()
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()


def test_tie_counts_against_true_class():
    total = ScoreSum(3, worst=1)
    total.add(np.array([[0.4, 0.4, 0.2]]), np.array([0]))
    scores = total.result()
    assert scores.top1 == 0
    assert scores.mistakes[0].predicted == 1


def test_worst_keeps_surest_and_earlier_of_equals():
    total = ScoreSum(2, worst=2)
    total.add(np.array([[0.4, 0.6], [0.2, 0.8], [0.2, 0.8], [0.2, 0.8]]), np.zeros(4, np.int64))
    assert [mistake.index for mistake in total.result().mistakes] == [1, 2]


def test_worst_zero_keeps_none():
    total = ScoreSum(2)
    total.add(np.array([[0.4, 0.6]]), np.array([0]))
    assert total.result().mistakes == ()


def test_loss_is_floored_as_caffe_does():
    total = ScoreSum(2)
    total.add(np.array([[0.0, 1.0]]), np.array([0]))
    assert total.result().loss == pytest.approx(-math.log(SMALLEST_PROBABILITY), rel=1e-12)
    assert total.result().loss == pytest.approx(87.33655, rel=1e-6)


def test_softmax_equals_slow_loop_and_survives_large_scores():
    rows = np.array([[1000.0, 999.0, -1000.0], [0.5, 0.25, -3.0]])
    np.testing.assert_allclose(softmax(rows), [slow_softmax(row) for row in rows.tolist()], rtol=1e-12)


def test_float_labels_of_hdf5_count_as_whole_numbers():
    total = ScoreSum(2)
    total.add(np.array([[0.4, 0.6]]), np.array([1.0], np.float32))
    assert total.result().top1 == 1


@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        ([[0.5, 0.5], [0.1, 0.9]], [1, 2], "sample 5: label 2 outside [0, 2), the classes that the net scores"),
        ([[0.5, 0.5]], [-1], "sample 4: label -1 outside [0, 2), the classes that the net scores"),
        ([[0.5, 0.5]], [0.5], "sample 4: label 0.5 is not a whole number; class labels are 0, 1, 2, ..."),
        (
            [[np.nan, 0.5]],
            [0],
            "sample 4: the net's scores are not finite; the weights diverged, score an earlier snapshot",
        ),
    ],
)
def test_bad_sample_is_named(probabilities, labels, message):
    total = ScoreSum(2)
    total.add(np.full((4, 2), 0.5), np.zeros(4, np.int64))
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        total.add(np.array(probabilities), np.array(labels))


def test_nothing_to_score_is_an_error():
    total = ScoreSum(2, ignore_label=1)
    total.add(np.array([[0.5, 0.5]]), np.array([1]))
    with pytest.raises(DataError, match=r"^no sample to score: 1 read, all of ignore_label=1$"):
        total.result()


def test_interval_is_wilsons():
    # Solve |share - p| = z sqrt(p (1 - p) / n) for p by bisection: Wilson's bounds are its two roots.
    share, n, z = 0.9, 50, 1.959964

    def root(low, high, sign):
        for _ in range(200):
            middle = (low + high) / 2
            inside = abs(share - middle) < z * math.sqrt(middle * (1 - middle) / n)
            low, high = (low, middle) if inside == (sign < 0) else (middle, high)
        return low

    lower, upper = accuracy_interval(share, n)
    assert lower == pytest.approx(root(0.0, share, -1), abs=1e-9)
    assert upper == pytest.approx(root(share, 1.0, 1), abs=1e-9)
    assert accuracy_interval(1.0, 10)[1] == pytest.approx(1.0, abs=1e-12)
