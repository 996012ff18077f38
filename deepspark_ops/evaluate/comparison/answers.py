"""Two nets' answers to the same samples, compared pair by pair: what the gate decides on and the report shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.evaluate.comparison.grouped import (
    Groups,
    flipped_p_value,
    group_numbers,
    group_sums,
    two_sided_flipped_p_value,
)
from deepspark_ops.evaluate.comparison.paired import (
    Right,
    compare_losses,
    compare_right,
    mcnemar_p_value,
    two_sided_p_value,
)
from deepspark_ops.evaluate.evaluation_folder import Evaluated
from deepspark_ops.evaluate.metrics import classes_of
from deepspark_ops.evaluate.sample_scores import ScoredSamples
from deepspark_ops.evaluate.scores import TOP_K, Answers
from deepspark_ops.evaluate.tasks.metrics_head import MainFigure
from deepspark_ops.frozen_model import FrozenModel
from deepspark_ops.shards.class_name import class_name
from deepspark_ops.shards.hash_membership import are_in

Metric = Literal["top1", "top5", "loss"]
COMPARISON_VERSION: Final = 3


class ClassChange(FrozenModel):
    """Top-1 of two nets for a class.

    Attributes:
        label: The class' number.
        name: Its name, or the number as text.
        n_samples: Samples of this class.
        candidate: Share that the candidate gets right; None without samples.
        production: Share that production gets right.
        n_gained: Samples that the candidate alone gets right.
        n_lost: Samples that production alone gets right.
        p_worse: One-sided p-value that the class got worse (within the class McNemar's exact test, or that of groups).
        production_takes: Share of the other classes' samples that production takes for this class: 1 where it answers
            nothing else; None if it was not recorded.
    """

    label: int
    name: str
    n_samples: int
    candidate: float | None
    production: float | None
    n_gained: int
    n_lost: int
    p_worse: float
    production_takes: float | None = None

    def loss(self) -> float:
        """Return production's share minus the candidate's share; negative if the candidate is better."""
        return (self.n_lost - self.n_gained) / self.n_samples if self.n_samples else 0.0


class Comparison(FrozenModel):
    """A candidate against what is in production, on the same samples.

    Attributes:
        format_version: Version of this form; 1 has no ``figures``, 1 and 2 no ``n_groups``.
        metric: What is compared; of another task than classification always ``loss``, the samples' own error.
        candidate: The candidate's value of the metric.
        production: Production's.
        n_samples: Samples that count.
        gain: How much better the candidate is; positive is better, in the metric's unit (a share, or nats).
        interval: Interval of ``gain``; None where there are too few groups for one.
        interval_level: Its level, two-sided.
        p_value: One-sided: chance of such a gain if both were equally good.
        n_gained: Samples that the candidate alone gets right (top5: among its first five); of another task than
            classification those on which its error is the smaller one.
        n_lost: Samples that production alone gets right; likewise.
        n_new: Samples that were not in the set on which production was promoted; None if that set is not known.
        classes: In label order; none of another task than classification.
        figures: What the task is judged by, the candidate's and production's; None of a classification.
        n_groups: Groups of samples that p-value and interval take as one observation each; None where every sample is
            one.
    """

    format_version: Literal[1, 2, 3]
    metric: Metric
    candidate: float
    production: float
    n_samples: int
    gain: float
    interval: tuple[float, float] | None
    interval_level: float
    p_value: float
    n_gained: int
    n_lost: int
    n_new: int | None
    classes: tuple[ClassChange, ...]
    figures: tuple[MainFigure, MainFigure] | None = None
    n_groups: int | None = None


def compare_evaluations(
    candidate: Evaluated,
    production: Evaluated,
    *,
    metric: Metric,
    confidence: float,
    known_content: npt.NDArray[np.uint64] | None,
) -> Comparison:
    """Compare two classifications by the metric, or two nets of another task by the samples' own errors.

    For arguments and errors see ``compare_samples``.
    """
    is_classification = classes_of(candidate.metrics) is not None and classes_of(production.metrics) is not None
    return compare_samples(
        candidate.samples,
        production.samples,
        metric=metric if is_classification else "loss",
        confidence=confidence,
        class_names=candidate.class_names(),
        known_content=known_content,
        figures=None if is_classification else (candidate.metrics.main, production.metrics.main),
    )


def compare_samples(
    candidate: ScoredSamples,
    production: ScoredSamples,
    *,
    metric: Metric,
    confidence: float,
    class_names: Sequence[str] = (),
    known_content: npt.NDArray[np.uint64] | None = None,
    figures: tuple[MainFigure, MainFigure] | None = None,
) -> Comparison:
    """Compare two nets sample by sample.

    Args:
        candidate: What the candidate answered.
        production: What production answered, to the same samples in the same order.
        metric: What to compare; of another task than classification ``loss``.
        confidence: That the decision needs. The interval's lower end is exceeded with this confidence, so its level
            is ``2 * confidence - 1``.
        class_names: In label order; classes beyond them are named by their number.
        known_content: Content hashes of the samples on which production was promoted; None if they are not known.
        figures: What the task is judged by, the candidate's and production's; None of a classification.

    Raises:
        ConfigError: The metric is not defined for so few classes.
        DataError: The two were scored on different samples.
    """
    require_same_samples(candidate, production)
    if metric == "top5" and candidate.n_classes <= TOP_K:
        msg = f"metric=top5: not defined for {candidate.n_classes} classes; allowed here: top1, loss"
        raise ConfigError(msg)
    my_loss, their_loss = candidate.answers.loss, production.answers.loss
    level, groups = interval_level(confidence), groups_of(candidate, production)
    if figures is None:
        top = TOP_K if metric == "top5" else 1
        my_right, their_right = candidate.classes().rank < top, production.classes().rank < top
        classes = _class_changes(candidate.classes(), production.classes(), candidate.n_classes, class_names, groups)
    else:
        my_right, their_right, classes = my_loss < their_loss, their_loss < my_loss, ()
    if metric == "loss":
        values = float(my_loss.mean()), float(their_loss.mean())
        gain = compare_losses(my_loss, their_loss, level=level, groups=groups)
    else:
        values = float(my_right.mean()), float(their_right.mean())
        gain = compare_right(my_right, their_right, level=level, groups=groups)
    return Comparison(
        format_version=COMPARISON_VERSION,
        metric=metric,
        candidate=values[0],
        production=values[1],
        n_samples=len(my_right),
        gain=gain.value,
        interval=gain.interval,
        interval_level=gain.level,
        p_value=gain.p_value,
        n_gained=_count(my_right & ~their_right),
        n_lost=_count(their_right & ~my_right),
        n_new=None if known_content is None else _count(~are_in(candidate.content, known_content)),
        classes=classes,
        figures=figures,
        n_groups=gain.n_groups,
    )


def interval_level(confidence: float) -> float:
    """Return the two-sided level of an interval whose lower end is exceeded with a confidence."""
    return round(2 * confidence - 1, 12)  # 0.9, not 0.8999...


def difference_p_value(first: ScoredSamples, second: ScoredSamples) -> float:
    """Return the two-sided p-value of the difference between two classifiers' top-1.

    Raises:
        DataError: They are of another task.
    """
    differences = (first.classes().rank == 0).astype(np.int64) - (second.classes().rank == 0)
    groups = groups_of(first, second)
    if groups is None:
        return two_sided_p_value(_count(differences > 0), _count(differences < 0))
    return two_sided_flipped_p_value(group_sums(differences, groups))


def groups_of(first: ScoredSamples, second: ScoredSamples) -> Groups | None:
    """Return the groups of the samples of two nets; None for evaluations of an earlier version."""
    return group_numbers(first.group if first.group is not None else second.group)


def require_same_samples(candidate: ScoredSamples, production: ScoredSamples) -> None:
    """Refuse two evaluations of different samples or tasks.

    Raises:
        DataError: The samples or the tasks differ.
    """
    remedy = "evaluate both on the same data"
    if candidate.task != production.task:
        msg = f"the candidate was scored as {candidate.task}, production as {production.task}; they cannot be compared"
        raise DataError(msg)
    if candidate.dataset_digest != production.dataset_digest:
        msg = (
            f"the candidate was scored on other samples ({candidate.dataset_digest}) than production "
            f"({production.dataset_digest}); {remedy}"
        )
        raise DataError(msg)
    if not np.array_equal(candidate.answers.index, production.answers.index):
        msg = (
            f"of the same data {len(candidate.answers):,} samples count for the candidate and "
            f"{len(production.answers):,} for production, not the same ones (ignore_label); {remedy}"
        )
        raise DataError(msg)


def _class_changes(
    mine: Answers, production: Answers, n_classes: int, names: Sequence[str], groups: Groups | None
) -> tuple[ClassChange, ...]:
    answered = np.bincount(production.predicted, minlength=n_classes)
    is_right, was_right = mine.rank == 0, production.rank == 0
    counts, my_right, their_right, gained, lost = (
        np.bincount(mine.label[chosen], minlength=n_classes)
        for chosen in (slice(None), is_right, was_right, is_right & ~was_right, ~is_right & was_right)
    )
    losses = was_right.astype(np.int64) - is_right

    def p_worse(label: int) -> float:
        if groups is None:
            return mcnemar_p_value(int(lost[label]), int(gained[label]))
        changed = (mine.label == label) & (losses != 0)
        return flipped_p_value(group_sums(losses[changed], groups[changed]))

    return tuple(
        ClassChange(
            label=label,
            name=class_name(names, label),
            n_samples=int(counts[label]),
            candidate=float(my_right[label] / counts[label]) if counts[label] else None,
            production=float(their_right[label] / counts[label]) if counts[label] else None,
            n_gained=int(gained[label]),
            n_lost=int(lost[label]),
            p_worse=p_worse(label),
            production_takes=float((answered[label] - their_right[label]) / max(1, len(mine) - counts[label])),
        )
        for label in range(n_classes)
    )


def _count(chosen: Right) -> int:
    return int(np.count_nonzero(chosen))
