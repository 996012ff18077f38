"""Samples of the wrong cells of a confusion matrix, for the report: a cell links to its samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from deepspark_ops.evaluate.scores import Answers

MOST_PER_CELL: Final = 8
MOST_SAMPLES: Final = 160
"""Of all cells: a photograph of 160 pixels has about 6 KB, so the pictures of a report stay below a megabyte."""


@dataclass(frozen=True)
class ConfusedSample:
    """A misclassified sample.

    Attributes:
        index: Position of the sample in the order of reading.
        label_probability: The net's probability of the true class, in [0, 1].
    """

    index: int
    label_probability: float


@dataclass(frozen=True)
class ConfusedCell:
    """A cell outside the diagonal of a confusion matrix.

    Attributes:
        label: True class, the row.
        predicted: Predicted class, the column.
        count: Samples of the cell.
        samples: At most ``MOST_PER_CELL`` of the samples, the largest loss first.
    """

    label: int
    predicted: int
    count: int
    samples: tuple[ConfusedSample, ...]


def confused_cells(answers: Answers, *, most: int = MOST_SAMPLES) -> tuple[ConfusedCell, ...]:
    """Return the cells with mistakes, the cell with the most samples first.

    Every cell has the same number of samples, as far as the cell has them. If ``most`` samples do not suffice for a
    sample in each cell, the smallest cells are left out.

    Args:
        answers: Of the net.
        most: How many samples in all cells together, at most.
    """
    wrong = np.flatnonzero(answers.label != answers.predicted)
    positions: dict[tuple[int, int], list[int]] = {}
    for at in wrong[np.argsort(-answers.loss[wrong], kind="stable")].tolist():
        positions.setdefault((int(answers.label[at]), int(answers.predicted[at])), []).append(at)
    by_size = sorted(positions.items(), key=lambda cell: (-len(cell[1]), cell[0]))[:most]
    per_cell = max(
        (n for n in range(1, MOST_PER_CELL + 1) if sum(min(n, len(of_cell)) for _, of_cell in by_size) <= most),
        default=0,
    )
    return tuple(
        ConfusedCell(
            label,
            predicted,
            len(of_cell),
            tuple(
                ConfusedSample(int(answers.index[at]), float(np.exp(-answers.loss[at]))) for at in of_cell[:per_cell]
            ),
        )
        for (label, predicted), of_cell in by_size
    )
