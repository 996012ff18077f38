"""Samples behind a report's figures: a cell of a confusion matrix, a class, a bar of a chart opens its samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from deepspark_ops.evaluate.figures.calibration import bins_of
from deepspark_ops.evaluate.figures.regression import ResidualHistogram
from deepspark_ops.evaluate.per_sample.row_reader import numbers_of_rows
from deepspark_ops.evaluate.scores import Answers, SampleLosses
from deepspark_ops.evaluate.tasks.classification import ClassificationMetrics
from deepspark_ops.evaluate.tasks.embedding import EmbeddingMetrics
from deepspark_ops.evaluate.tasks.metrics_head import MetricsReport
from deepspark_ops.evaluate.tasks.multi_label import MultiLabelMetrics
from deepspark_ops.evaluate.tasks.reconstruction import ReconstructionMetrics
from deepspark_ops.evaluate.tasks.regression import RegressionMetrics
from deepspark_ops.evaluate.tasks.segmentation import SegmentationMetrics
from deepspark_ops.sizes import share_text

MOST_PER_GROUP: Final = 8
MOST_OF_CELLS: Final = 160
MOST_OF_CLASSES: Final = 80
MOST_OF_BARS: Final = 80
"""Samples of all groups of a kind that no group before shows. A photograph of 160 pixels has about 6 KB, so the
pictures of 400 samples stay below three megabytes."""
MOST_OUTPUTS: Final = 6
"""Outputs of a regression with charts, and with bars that open samples."""
BARS_LEAD: Final = "A bar leads to samples."
PAIR_WORDS: Final = {"same": "Distance of alike pairs", "other": "Distance of other pairs"}
"""Chart -> title of the bars of pairs."""
_MOST_NUMBERS: Final = 4


@dataclass(frozen=True)
class SampleGroup:
    """Samples behind a figure.

    Attributes:
        id: Unique in the page: letters, digits and hyphens.
        title: What the samples have in common.
        count: Samples of the figure.
        indices: Positions of at most ``MOST_PER_GROUP`` of the samples, the largest loss first.
    """

    id: str
    title: str
    count: int
    indices: tuple[int, ...]


@dataclass(frozen=True)
class SampleGroups:
    """The groups of a report.

    Attributes:
        groups: At least one sample in each.
        texts: Position of each sample -> lines for its caption: what the net answered. The largest loss is first.
        loss_word: Word for the loss that orders the samples.
    """

    groups: tuple[SampleGroup, ...] = ()
    texts: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    loss_word: str = "loss"

    def links(self) -> dict[str, str]:
        """Return group's id -> address in the page."""
        return {group.id: f"#{group.id}" for group in self.groups}


def cell_id(label: int, predicted: int) -> str:
    """Return the id of the group of a cell of the confusion matrix."""
    return f"cell-{label}-{predicted}"


def class_id(label: int) -> str:
    """Return the id of the group of a true class, a label of several, or a class of pixels."""
    return f"class-{label}"


def bar_id(chart: str, bar: int) -> str:
    """Return the id of the group of a bar.

    Charts are ``confidence``, ``error``, ``same`` and ``other`` (distances of pairs) and ``residual-OUTPUT``.
    """
    return f"{chart}-{bar}"


def bar_links(links: Mapping[str, str], chart: str, n_bars: int) -> dict[int, str]:
    """Return position of a bar -> address, from id of a group -> address."""
    return {bar: links[bar_id(chart, bar)] for bar in range(n_bars) if bar_id(chart, bar) in links}


def groups_behind_figures(metrics: MetricsReport, losses: SampleLosses, rows: Path | None) -> SampleGroups:
    """Return the samples behind the figures of the main result; ``losses`` of a classification are ``Answers``.

    The rows in the folder ``rows`` have further values: without them the bars of confidences, residuals and distances,
    the labels of several and the classes of pixels have no samples.
    """
    if isinstance(metrics, ClassificationMetrics) and isinstance(losses, Answers):
        return _of_classification(metrics, losses, rows)
    if isinstance(metrics, RegressionMetrics):
        return _of_regression(metrics, losses, rows)
    if isinstance(metrics, MultiLabelMetrics):
        return _of_labels(metrics, losses, rows)
    if isinstance(metrics, SegmentationMetrics):
        return _of_segmentation(metrics, losses, rows)
    if isinstance(metrics, EmbeddingMetrics):
        return _of_pairs(metrics, losses, rows)
    if isinstance(metrics, ReconstructionMetrics):
        errors = metrics.figures.errors
        groups = _grouped(
            losses, errors.bars_of(losses.loss), lambda bar: (bar_id("error", bar), _range("Error", errors.bounds(bar)))
        )
        chosen = limited(groups, MOST_OF_BARS, set())
        texts = {index: (f"error {losses.loss[at]:.4g}",) for index, at in _by_loss(chosen, losses)}
        return SampleGroups(chosen, texts, "error")
    return SampleGroups()


def limited(groups: Sequence[SampleGroup], most: int, shown: set[int]) -> tuple[SampleGroup, ...]:
    """Return the groups with at most ``most`` samples that are not in ``shown``; adds these samples to ``shown``.

    The groups take a sample in turn, the largest group first. A group without room for its next sample is complete,
    and a group without a sample is left out.
    """
    n_taken: dict[str, int] = {}
    room, waiting = most, sorted(groups, key=lambda group: -group.count)
    for turn in range(MOST_PER_GROUP):
        continuing = []
        for group in waiting:
            index = next(iter(group.indices[turn:]), None)
            if index is None or (index not in shown and not room):
                continue
            room -= index not in shown
            shown.add(index)
            n_taken[group.id] = turn + 1
            continuing.append(group)
        waiting = continuing
    return tuple(replace(group, indices=group.indices[: n_taken[group.id]]) for group in groups if group.id in n_taken)


def _of_classification(metrics: ClassificationMetrics, answers: Answers, rows: Path | None) -> SampleGroups:
    names = [report.name for report in metrics.classes]
    n_classes = len(names)
    label, predicted = answers.label.astype(np.int64), answers.predicted.astype(np.int64)
    cells = _grouped(
        answers,
        np.where(label != predicted, label * n_classes + predicted, -1),
        lambda cell: (
            cell_id(*divmod(cell, n_classes)),
            f"{names[cell // n_classes]} taken for {names[cell % n_classes]}",
        ),
        most=MOST_OF_CELLS,
    )
    classes = _grouped(answers, label, lambda key: (class_id(key), f"All of class “{names[key]}”"))
    right = _grouped(
        answers,
        np.where(label == predicted, label, -1),
        lambda key: (cell_id(key, key), f"{names[key]}, right"),
        most=MOST_OF_CLASSES,
    )
    shown: set[int] = set()
    chosen = [*limited(cells, MOST_OF_CELLS, shown), *limited(classes, MOST_OF_CLASSES, shown)]
    chosen += limited(right, MOST_OF_CLASSES, shown)
    confidence = numbers_of_rows(rows, "probability")
    if confidence is not None and metrics.calibration is not None:
        bins = metrics.calibration.bins
        bars = _grouped(
            answers,
            bins_of(confidence[answers.index, 0], len(bins)),
            lambda bar: (
                bar_id("confidence", bar),
                f"Confidence from {100 * bins[bar].low:.3g} to {100 * bins[bar].high:.3g} %",
            ),
        )
        chosen += limited(bars, MOST_OF_BARS, shown)
    texts = {}
    for index, at in _by_loss(chosen, answers):
        true, answer = names[label[at]], names[predicted[at]]
        of_label = f"true class {share_text(float(np.exp(-answers.loss[at])))}"
        texts[index] = (f"{true}, right" if true == answer else f"{true} taken for {answer}", of_label)
    return SampleGroups(tuple(chosen), texts)


def _of_labels(metrics: MultiLabelMetrics, losses: SampleLosses, rows: Path | None) -> SampleGroups:
    names = [label.name for label in metrics.figures.labels]
    labels, probabilities = (numbers_of_rows(rows, name, most=len(names)) for name in ("labels", "probabilities"))
    if labels is None or probabilities is None:
        return SampleGroups()

    def names_where(is_named: npt.NDArray[np.bool_]) -> str:
        named = [names[at] for at in np.flatnonzero(is_named).tolist()]
        return ", ".join([*named[:_MOST_NUMBERS], *(["..."] if len(named) > _MOST_NUMBERS else [])]) or "none"

    is_there, is_answered = labels == 1, probabilities > metrics.figures.threshold
    chosen = _with_each("label", names, is_there, losses)
    texts = {
        index: (f"answered: {names_where(is_answered[index])}", f"there: {names_where(is_there[index])}")
        for index, _ in _by_loss(chosen, losses)
    }
    return SampleGroups(chosen, texts)


def _of_segmentation(metrics: SegmentationMetrics, losses: SampleLosses, rows: Path | None) -> SampleGroups:
    names = [report.name for report in metrics.figures.classes]
    true_pixels = numbers_of_rows(rows, "true_pixels", most=len(names))
    if true_pixels is None:
        return SampleGroups()
    chosen = _with_each("class", names, true_pixels > 0, losses)
    texts = {
        index: (f"{share_text(1.0 - float(losses.loss[at]))} of its {metrics.counted} right",)
        for index, at in _by_loss(chosen, losses)
    }
    return SampleGroups(chosen, texts, f"share of wrong {metrics.counted}")


def _with_each(
    word: str, names: Sequence[str], is_there: npt.NDArray[np.bool_], losses: SampleLosses
) -> tuple[SampleGroup, ...]:
    """Return a group for each label or class: the samples with it, of ``is_there`` (n_samples, n_labels)."""
    row, label = np.nonzero(is_there[losses.index])
    groups = _grouped(losses, label, lambda key: (class_id(key), f"With {word} “{names[key]}”"), rows=row)
    return limited(groups, MOST_OF_CLASSES, set())


def _of_regression(metrics: RegressionMetrics, losses: SampleLosses, rows: Path | None) -> SampleGroups:
    true, predicted = (numbers_of_rows(rows, name, most=MOST_OUTPUTS) for name in ("true", "predicted"))
    if true is None or predicted is None:
        return SampleGroups()
    groups: list[SampleGroup] = []
    outputs = metrics.figures.outputs[:MOST_OUTPUTS]
    for at, output in enumerate(outputs):
        if output.residuals is None:
            continue
        of = "" if len(metrics.figures.outputs) == 1 else f" of output {output.name}"
        groups += _residual_groups(losses, (predicted - true)[losses.index, at], output.residuals, at, of)
    chosen = limited(groups, MOST_OF_BARS, set())
    texts = {
        index: (f"predicted {_numbers(predicted[index])}", f"true {_numbers(true[index])}")
        for index, _ in _by_loss(chosen, losses)
    }
    return SampleGroups(chosen, texts, "error")


def _residual_groups(
    losses: SampleLosses, residuals: npt.NDArray[np.float64], histogram: ResidualHistogram, output: int, of: str
) -> list[SampleGroup]:
    return _grouped(
        losses,
        histogram.bars_of(residuals),
        lambda bar: (bar_id(f"residual-{output}", bar), _range(f"Residual{of}", histogram.bounds(bar))),
    )


def _of_pairs(metrics: EmbeddingMetrics, losses: SampleLosses, rows: Path | None) -> SampleGroups:
    distances, same = numbers_of_rows(rows, "distance"), numbers_of_rows(rows, "is_same")
    figures = metrics.figures
    if figures is None or figures.distances is None or distances is None or same is None:
        return SampleGroups()
    distance, is_same = distances[losses.index, 0], same[losses.index, 0] == 1
    bars = figures.distances.same

    def groups_of(chart: str, is_of_kind: npt.NDArray[np.bool_]) -> list[SampleGroup]:
        keys = np.where(is_of_kind, bars.bars_of(distance), -1)
        return _grouped(losses, keys, lambda bar: (bar_id(chart, bar), _range(PAIR_WORDS[chart], bars.bounds(bar))))

    chosen = limited([*groups_of("same", is_same), *groups_of("other", ~is_same)], MOST_OF_BARS, set())
    texts = {
        index: (f"distance {distance[at]:.4g}", "alike" if is_same[at] else "not alike")
        for index, at in _by_loss(chosen, losses)
    }
    return SampleGroups(chosen, texts)


def _grouped(
    losses: SampleLosses,
    keys: npt.NDArray[np.int64],
    id_and_title: Callable[[int], tuple[str, str]],
    *,
    most: int | None = None,
    rows: npt.NDArray[np.int64] | None = None,
) -> list[SampleGroup]:
    """Return a group for each key, the largest group first; of equal losses the earlier sample is first.

    Samples with a key below 0 are in no group. ``most`` groups are returned, the largest. ``rows``, (n,), is the row of
    ``losses`` of each key; None: a key for each row.
    """
    is_grouped = keys >= 0
    keys, rows = keys[is_grouped], np.flatnonzero(is_grouped) if rows is None else rows[is_grouped]
    order = np.lexsort((rows, -losses.loss[rows], keys))
    keys, rows = keys[order], rows[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    counts = np.diff(starts, append=len(keys))
    groups = []
    for at in np.argsort(-counts, kind="stable")[:most].tolist():
        start, count = int(starts[at]), int(counts[at])
        indices = losses.index[rows[start : start + min(count, MOST_PER_GROUP)]]
        groups.append(SampleGroup(*id_and_title(int(keys[start])), count, tuple(indices.tolist())))
    return groups


def _by_loss(groups: Sequence[SampleGroup], losses: SampleLosses) -> list[tuple[int, int]]:
    """Return position and row of each sample of the groups, the largest loss first."""
    indices = np.array(sorted({index for group in groups for index in group.indices}), np.int64)
    rows = np.searchsorted(losses.index, indices)
    order = np.argsort(-losses.loss[rows], kind="stable")
    return list(zip(indices[order].tolist(), rows[order].tolist(), strict=True))


def _range(word: str, bounds: tuple[float, float]) -> str:
    return f"{word} from {bounds[0]:.4g} to {bounds[1]:.4g}"


def _numbers(values: npt.NDArray[np.float64]) -> str:
    text = ", ".join(f"{value:.4g}" for value in values[:_MOST_NUMBERS])
    return f"{text}, ..." if len(values) > _MOST_NUMBERS else text
