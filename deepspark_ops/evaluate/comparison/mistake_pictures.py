"""Pictures of misclassified samples, or of samples with a large error, stored with the evaluation.

If two nets classify a sample differently, a net of the two is wrong. So the stored pictures suffice for a comparison of
two evaluations, even after the dataset was removed. For nets without classes the pictures also show the net's output
for the sample.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from deepspark_ops.evaluate.sample_scores import ScoredSamples
from deepspark_ops.evaluate.scores import Answers, SampleLosses
from deepspark_ops.evaluate.tasks.metrics_head import ScoredOn
from deepspark_ops.shards.files.picture_archive import EncodedPicture, PictureArchive, write_pictures

PICTURES_NAME: Final = "mistakes.zip"
MOST_KEPT: Final = 240
MOST_KEPT_ERRORS: Final = 48
"""Of nets without classes: each is a sample that goes through the net once more."""
PICTURE_PIXELS: Final = 112
"""Of the longer side: a photograph has about 4 KB then."""


def kept_mistakes(answers: Answers, most: int = MOST_KEPT) -> list[int]:
    """Return the positions of the mistakes whose pictures are kept.

    The first mistake of each class precedes the second mistake of any class. Within a class the smallest loss is first:
    another net is likeliest to get this sample right.

    Args:
        answers: Of the net.
        most: How many at most.
    """
    wrong = np.flatnonzero(answers.rank)
    by_loss = wrong[np.argsort(answers.loss[wrong], kind="stable")]
    return [int(answers.index[at]) for at in in_turns(answers.label, by_loss.tolist())[:most]]


def in_turns(labels: npt.NDArray[np.int32], chosen: Sequence[int]) -> list[int]:
    """Return the chosen samples in another order: the first of each class precedes the second of any class."""
    counts: Counter[int] = Counter()
    turns = []
    for order, at in enumerate(chosen):
        counts[int(labels[at])] += 1
        turns.append((counts[int(labels[at])], order, at))
    return [at for _, _, at in sorted(turns)]


def kept_errors(losses: SampleLosses, most: int = MOST_KEPT_ERRORS) -> list[int]:
    """Return the positions of the samples with the largest errors, for nets without classes.

    If the errors of two nets differ much, the larger error is among the largest of a net.
    """
    order = np.argsort(-losses.loss, kind="stable")[:most]
    return [int(index) for index in losses.index[order]]


def write_mistake_pictures(folder: Path, samples: ScoredSamples, pictures: Mapping[int, EncodedPicture]) -> None:
    """Keep pictures of mistakes, by position, in an evaluation's folder; no file where the samples are no pictures."""
    path = folder / PICTURES_NAME
    if pictures:
        write_pictures(path, pictures, _made_of(samples))
    else:
        path.unlink(missing_ok=True)


def open_mistake_pictures(folder: Path, scored: ScoredSamples | ScoredOn) -> PictureArchive:
    """Return the pictures of an evaluation's folder; none if the pictures belong to another evaluation."""
    return PictureArchive(folder / PICTURES_NAME, _made_of(scored))


def _made_of(scored: ScoredSamples | ScoredOn) -> str:
    return f"{scored.weights_digest} on {scored.dataset_digest}"
