import re

import numpy as np
import pytest

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.figures.confusion import MOST_MATRIX_CLASSES
from deepspark_ops.evaluate.figures.segmentation import SegmentationSum
from tests.reference.slow_figures import slow_segmentation
from tests.unit.deepspark_ops.evaluate.figures.batched_sum import sum_in_batches


def label_maps(n, n_classes, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, n_classes - 1, (n, 5, 6))  # the last class is never there
    labels[labels == 1] = 255
    predicted = np.where(rng.random(labels.shape) < 0.6, labels % n_classes, rng.integers(0, n_classes, labels.shape))
    return predicted, labels


def test_figures_are_those_of_the_paper():
    predicted, labels = label_maps(13, 6, 1)
    result = sum_in_batches(SegmentationSum(6, ignore_label=255, worst=2), predicted, labels, batch=4).result(["sky"])
    expected = slow_segmentation(predicted.ravel().tolist(), labels.ravel().tolist(), 6, 255)
    assert [list(row) for row in result.confusion] == expected["confusion"]
    for name in ("pixel_accuracy", "mean_accuracy", "mean_iou", "frequency_weighted_iou"):
        assert getattr(result, name) == pytest.approx(expected[name], abs=1e-12)
    assert result.n_ignored == np.count_nonzero(labels == 255)
    assert result.n_pixels + result.n_ignored == labels.size
    assert [class_row.name for class_row in result.classes][:2] == ["sky", "1"]
    assert result.classes[1].accuracy is None  # not there, but answered
    assert result.classes[1].iou == 0.0


def test_figures_of_many_classes_need_no_matrix():
    n_classes = MOST_MATRIX_CLASSES + 1
    predicted, labels = label_maps(5, 6, 2)
    few = sum_in_batches(SegmentationSum(6, ignore_label=255), predicted, labels, batch=2).result()
    many = sum_in_batches(SegmentationSum(n_classes, ignore_label=255), predicted, labels, batch=2).result()
    assert many.confusion == ()
    assert many.classes[:6] == few.classes
    assert (many.mean_iou, many.pixel_accuracy, many.n_pixels) == (few.mean_iou, few.pixel_accuracy, few.n_pixels)


def test_a_class_that_is_nowhere_does_not_count():
    result = SegmentationSum(3)
    result.add(np.array([[0, 1]]), np.array([[0, 1]]))
    figures = result.result()
    assert (figures.mean_iou, figures.mean_accuracy, figures.classes[2].iou) == (1.0, 1.0, None)


def test_worst_images_have_the_fewest_right_pixels():
    predicted, labels = label_maps(20, 5, 2)
    counted = labels != 255
    right = ((predicted == labels) & counted).sum(axis=(1, 2)) / counted.sum(axis=(1, 2))
    worst = sum_in_batches(SegmentationSum(5, ignore_label=255, worst=2), predicted, labels, batch=4).result().worst
    assert [image.value for image in worst] == pytest.approx(sorted(right)[:2])
    assert worst[0].index == int(np.argmin(right))


def test_batches_and_processes_do_not_matter():
    predicted, labels = label_maps(15, 5, 3)
    total = sum_in_batches(SegmentationSum(5, ignore_label=255, worst=2), predicted, labels, batch=15)
    first = SegmentationSum(5, ignore_label=255, worst=2)
    first.add(predicted[8:], labels[8:], start=8)
    second = SegmentationSum(5, ignore_label=255, worst=2)
    second.add(predicted[:8], labels[:8])
    first.merge(second)
    assert first.result() == total.result()


def test_bad_labels_are_named():
    message = "sample 6: label 3 of a pixel; allowed: 0 to 2, and ignore_label 255"
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        SegmentationSum(3, ignore_label=255).add(np.zeros((2, 2), int), np.array([[0, 255], [0, 3]]), start=5)
    with pytest.raises(DataError, match=r"^sample 0: label 0.5 of a pixel"):
        SegmentationSum(3).add(np.zeros((1, 1), int), np.array([[0.5]]))
    with pytest.raises(DataError, match=r"^no pixel to score: all are of ignore_label=None$"):
        SegmentationSum(3).result()
