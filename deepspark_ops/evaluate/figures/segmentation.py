"""A class for every pixel: pixel accuracy, mean accuracy, mean IoU, frequency-weighted IoU.

Long, Shelhamer and Darrell, "Fully convolutional networks for semantic segmentation" (2015), section 5. n_ij pixels of
class i are predicted as class j, and t_i = sum_j n_ij. Pixel accuracy is sum_i n_ii / sum_i t_i. Mean accuracy is
(1/n_cl) sum_i n_ii / t_i. IoU_i is n_ii / (t_i + sum_j n_ji - n_ii), and mean IoU is (1/n_cl) sum_i IoU_i.
Frequency-weighted IoU is sum_i t_i IoU_i / sum_k t_k. Means are over the classes with a denominator above zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.figures.confusion import MOST_MATRIX_CLASSES
from deepspark_ops.evaluate.figures.extremes import Extremes, NamedSample


@dataclass(frozen=True)
class PixelClass:
    """One class.

    Attributes:
        label: Its number.
        name: Given by the caller, else the number.
        pixels: Pixels that are of it.
        predicted: Pixels that were taken for it.
        correct: Pixels that are both.
        accuracy: correct / pixels; None without a pixel.
        iou: correct / (pixels + predicted - correct); None where it is neither there nor answered.
    """

    label: int
    name: str
    pixels: int
    predicted: int
    correct: int
    accuracy: float | None
    iou: float | None


@dataclass(frozen=True)
class Segmentation:
    """What was found.

    Attributes:
        n_samples: Images read.
        n_pixels: Pixels that count.
        n_ignored: Pixels of the ignored label.
        pixel_accuracy: Share of pixels that are right.
        mean_accuracy: Mean over classes.
        mean_iou: Likewise.
        frequency_weighted_iou: IoU of the classes, weighted by their pixels.
        classes: In label order.
        confusion: Pixels, true class by row, predicted class by column; empty with more than ``MOST_MATRIX_CLASSES``
            classes.
        worst: Images with the smallest share of right pixels; that is their value.
    """

    n_samples: int
    n_pixels: int
    n_ignored: int
    pixel_accuracy: float
    mean_accuracy: float
    mean_iou: float
    frequency_weighted_iou: float
    classes: tuple[PixelClass, ...]
    confusion: tuple[tuple[int, ...], ...]
    worst: tuple[NamedSample, ...]


class SegmentationSum:
    """Sums over batches. Not thread-safe.

    Example:
        >>> total = SegmentationSum(2)
        >>> total.add(np.array([[[0, 1], [1, 1]]]), np.array([[[0, 0], [1, 1]]]))
        >>> result = total.result()
        >>> result.pixel_accuracy, [round(one.iou, 3) for one in result.classes]
        (0.75, [0.5, 0.667])
    """

    def __init__(self, n_classes: int, *, ignore_label: int | None = None, worst: int = 0) -> None:
        """Start at nothing; pixels of ``ignore_label`` (Caffe's) do not count, ``worst`` images are kept."""
        self._n_classes = n_classes
        self._ignore_label = ignore_label
        # Pixels of each class, answers with each class, and pixels that are both.
        self._counts = np.zeros((3, n_classes), np.int64)
        self._confusion = np.zeros((n_classes, n_classes) if n_classes <= MOST_MATRIX_CLASSES else (0, 0), np.int64)
        self._n_samples = 0
        self._n_ignored = 0
        self._worst = Extremes(worst, wants_smallest=True)

    def add(self, predicted: npt.NDArray[np.integer], labels: npt.NDArray[np.generic], *, start: int = 0) -> None:
        """Count a batch: classes (n, ...) in [0, n_classes), labels of the same shape and any dtype.

        Raises:
            DataError: A label that is no class; says which image.
        """
        n = len(labels)
        truth, answer = labels.reshape(n, -1), predicted.reshape(n, -1).astype(np.int64)
        counted = np.ones(truth.shape, np.bool_) if self._ignore_label is None else truth != self._ignore_label
        classes = truth.astype(np.int64)
        wrong = np.argwhere(counted & ((classes != truth) | (classes < 0) | (classes >= self._n_classes)))
        if len(wrong):
            row, column = wrong[0]
            msg = f"sample {start + row}: label {truth[row, column]} of a pixel; allowed: 0 to {self._n_classes - 1}"
            if self._ignore_label is not None:
                msg += f", and ignore_label {self._ignore_label}"
            raise DataError(msg)
        true_pixels, answered_pixels = classes[counted], answer[counted]
        if self._confusion.size:
            pairs = true_pixels * self._n_classes + answered_pixels
            matrix = np.bincount(pairs, minlength=self._n_classes**2).reshape(self._confusion.shape)
            self._confusion += matrix
            self._counts += [matrix.sum(axis=1), matrix.sum(axis=0), matrix.diagonal()]
        else:
            of_each = (true_pixels, answered_pixels, true_pixels[true_pixels == answered_pixels])
            self._counts += [np.bincount(pixel_classes, minlength=self._n_classes) for pixel_classes in of_each]
        self._n_samples += n
        self._n_ignored += int(counted.size - np.count_nonzero(counted))
        pixels = np.count_nonzero(counted, axis=1)
        right = np.count_nonzero(counted & (classes == answer), axis=1)
        # An image without a pixel that counts is not a bad one.
        self._worst.add(np.where(pixels > 0, right / np.maximum(pixels, 1), 1.0), start=start)

    def merge(self, other: SegmentationSum) -> None:
        """Add the counts of another sum with the same options."""
        self._counts += other._counts
        self._confusion += other._confusion
        self._n_samples += other._n_samples
        self._n_ignored += other._n_ignored
        self._worst.merge(other._worst)

    def result(self, names: Sequence[str] = ()) -> Segmentation:
        """Return the figures; classes beyond ``names`` are called by number.

        Raises:
            DataError: No pixel counted.
        """
        n_pixels, _, n_correct = self._counts.sum(axis=1).tolist()
        if not n_pixels:
            msg = f"no pixel to score: all are of ignore_label={self._ignore_label}"
            raise DataError(msg)
        classes = tuple(
            _pixel_class(at, names[at] if at < len(names) else str(at), *counts)
            for at, counts in enumerate(self._counts.T.tolist())
        )
        accuracies = [figures.accuracy for figures in classes if figures.accuracy is not None]
        ious = [figures.iou for figures in classes if figures.iou is not None]
        return Segmentation(
            n_samples=self._n_samples,
            n_pixels=n_pixels,
            n_ignored=self._n_ignored,
            pixel_accuracy=n_correct / n_pixels,
            mean_accuracy=sum(accuracies) / len(accuracies),
            mean_iou=sum(ious) / len(ious),
            frequency_weighted_iou=sum(figures.pixels * figures.iou for figures in classes if figures.iou is not None)
            / n_pixels,
            classes=classes,
            confusion=tuple(map(tuple, self._confusion.tolist())),
            worst=self._worst.result(),
        )


def _pixel_class(label: int, name: str, pixels: int, predicted: int, correct: int) -> PixelClass:
    union = pixels + predicted - correct
    return PixelClass(
        label=label,
        name=name,
        pixels=pixels,
        predicted=predicted,
        correct=correct,
        accuracy=correct / pixels if pixels else None,
        iou=correct / union if union else None,
    )
