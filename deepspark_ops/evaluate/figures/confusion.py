"""Counts of true and predicted classes, in memory that does not grow with the square of the classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]

MOST_MATRIX_CLASSES = 1_024
"""With more classes there is no confusion matrix, which grows with the square: 620 MB for 8,801 classes."""
MOST_CONFUSED = 1_000
"""Pairs of classes that are kept without a matrix."""


@dataclass(frozen=True)
class ConfusedPair:
    """A class that was taken for another.

    Attributes:
        label: True class.
        predicted: Class of the answers.
        times: Samples of ``label`` with this answer.
    """

    label: int
    predicted: int
    times: int


@dataclass(frozen=True)
class Confusion:
    """Counts of true and predicted classes.

    Attributes:
        support: (n_classes,), samples of each class.
        predicted: (n_classes,), samples that were taken for each class.
        correct: (n_classes,), samples that are both.
        pairs: Wrong pairs of classes, the most frequent first, at most ``MOST_CONFUSED``.
        matrix: (n_classes, n_classes), true class by row, predicted class by column; None with more than
            ``MOST_MATRIX_CLASSES`` classes.
    """

    support: Counts
    predicted: Counts
    correct: Counts
    pairs: tuple[ConfusedPair, ...]
    matrix: Counts | None

    @classmethod
    def of(cls, labels: npt.NDArray[np.integer], predicted: npt.NDArray[np.integer], n_classes: int) -> Confusion:
        """Count answers: ``labels`` and ``predicted`` are (n_samples,), in [0, n_classes)."""
        cells, counts = np.unique(labels.astype(np.int64) * n_classes + predicted, return_counts=True)
        rows, columns = np.divmod(cells, n_classes)
        wrong = np.flatnonzero(rows != columns)
        frequent = wrong[np.argsort(-counts[wrong], kind="stable")][:MOST_CONFUSED]
        pairs = zip(rows[frequent].tolist(), columns[frequent].tolist(), counts[frequent].tolist(), strict=True)
        matrix = None
        if n_classes <= MOST_MATRIX_CLASSES:
            matrix = np.zeros((n_classes, n_classes), np.int64)
            matrix[rows, columns] = counts
        return cls(
            support=np.bincount(labels, minlength=n_classes),
            predicted=np.bincount(predicted, minlength=n_classes),
            correct=np.bincount(labels[labels == predicted], minlength=n_classes),
            pairs=tuple(ConfusedPair(*pair) for pair in pairs),
            matrix=matrix,
        )
