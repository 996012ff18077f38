import re

import numpy as np
import pytest

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.figures.multi_label import MultiLabelSum
from tests.reference.slow_figures import slow_average_precision, slow_ece, slow_multi_label, slow_roc_auc
from tests.unit.deepspark_ops.evaluate.figures.batched_sum import sum_in_batches


def probabilities_and_labels(n, n_labels, seed, *, ignored=False):
    rng = np.random.default_rng(seed)
    labels = (rng.random((n, n_labels)) < 0.35).astype(np.float32)
    probabilities = np.clip(0.25 + 0.4 * labels + 0.3 * rng.standard_normal((n, n_labels)), 0, 1)
    if ignored:
        labels[rng.random((n, n_labels)) < 0.2] = -1
        labels[3] = -1
    return probabilities, labels


@pytest.mark.parametrize("ignore_label", [None, -1])
def test_figures_are_those_of_the_definitions(ignore_label):
    probabilities, labels = probabilities_and_labels(130, 4, 1, ignored=ignore_label is not None)
    total = sum_in_batches(MultiLabelSum(labels.shape[1], ignore_label=ignore_label), probabilities, labels)
    result = total.result(["cat"])
    expected = slow_multi_label(probabilities.tolist(), labels.tolist(), 0.5, ignore_label)
    assert result.subset_accuracy == pytest.approx(expected["subset"], abs=1e-12)
    assert result.hamming_loss == pytest.approx(expected["hamming"], abs=1e-12)
    assert [label.name for label in result.labels] == ["cat", "1", "2", "3"]
    f1 = []
    for at, label in enumerate(result.labels):
        detection, counts = label.detection, expected["counts"][at]
        assert (detection.true_positives, detection.false_positives) == (counts["tp"], counts["fp"])
        assert (detection.false_negatives, detection.true_negatives) == (counts["fn"], counts["tn"])
        precision, recall = counts["tp"] / (counts["tp"] + counts["fp"]), counts["tp"] / (counts["tp"] + counts["fn"])
        f1.append(2 * precision * recall / (precision + recall))
        assert detection.precision == pytest.approx(precision, abs=1e-12)
        assert detection.recall == pytest.approx(recall, abs=1e-12)
        assert detection.f1 == pytest.approx(f1[-1], abs=1e-12)
        rows = labels[:, at] != -1
        column, truth = probabilities[rows, at].tolist(), (labels[rows, at] == 1).tolist()
        assert label.ranked.average_precision == pytest.approx(slow_average_precision(column, truth), abs=1e-12)
        assert label.ranked.roc_auc == pytest.approx(slow_roc_auc(column, truth), abs=1e-12)
    assert result.macro_f1 == pytest.approx(np.mean(f1), abs=1e-12)
    counted = labels != -1
    answers = probabilities > 0.5
    confidence = np.where(answers, probabilities, 1 - probabilities)[counted].tolist()
    assert result.calibration.ece == pytest.approx(
        slow_ece(confidence, (answers == (labels == 1))[counted].tolist(), 15)[0], abs=1e-12
    )
    assert result.n_ignored == np.count_nonzero(~counted)
    assert result.ranking.micro.average_precision == pytest.approx(
        slow_average_precision(probabilities[counted].tolist(), (labels == 1)[counted].tolist()), abs=1e-12
    )


def test_batches_and_processes_do_not_matter():
    probabilities, labels = probabilities_and_labels(150, 3, 3, ignored=True)
    total = sum_in_batches(MultiLabelSum(labels.shape[1], ignore_label=-1), probabilities, labels, batch=150)
    first = sum_in_batches(MultiLabelSum(labels.shape[1], ignore_label=-1), probabilities[70:], labels[70:])
    first.merge(sum_in_batches(MultiLabelSum(labels.shape[1], ignore_label=-1), probabilities[:70], labels[:70]))
    assert first.result() == total.result()


def test_bad_labels_are_named():
    message = "sample 21: label 1 is 2.0; allowed: 0 and 1, and -1 for one that does not count"
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        MultiLabelSum(2, ignore_label=-1).add(np.full((2, 2), 0.5), np.array([[0.0, -1.0], [1.0, 2.0]]), start=20)
    total = MultiLabelSum(2, ignore_label=-1)
    total.add(np.full((1, 2), 0.5), np.full((1, 2), -1))
    with pytest.raises(DataError, match=r"^no label to score: all are of ignore_label=-1$"):
        total.result()
