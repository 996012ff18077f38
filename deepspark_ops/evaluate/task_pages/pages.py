"""Report sections of each task, and of slices of the samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from markupsafe import Markup

from deepspark_ops.config.shared_options.task import TaskName
from deepspark_ops.evaluate.charts import confusion_chart, grouped
from deepspark_ops.evaluate.figures.embedding import Neighbours, Verification
from deepspark_ops.evaluate.figures.extremes import NamedSample
from deepspark_ops.evaluate.figures.figure_charts import (
    bar_chart,
    density_chart,
    distance_charts,
    reliability_chart,
    residual_chart,
)
from deepspark_ops.evaluate.task_pages.confidence import curve_cards
from deepspark_ops.evaluate.task_pages.examples import MOST_SHOWN, Example
from deepspark_ops.evaluate.task_pages.parts import Card, Section, Shown, Table, TaskPage, Tile, shown
from deepspark_ops.evaluate.task_pages.sample_groups import BARS_LEAD, MOST_OUTPUTS, PAIR_WORDS, bar_links, class_id
from deepspark_ops.evaluate.tasks.embedding import EmbeddingMetrics
from deepspark_ops.evaluate.tasks.metrics_head import MetricsReport, SliceReport
from deepspark_ops.evaluate.tasks.multi_label import MultiLabelMetrics
from deepspark_ops.evaluate.tasks.reconstruction import ReconstructionMetrics
from deepspark_ops.evaluate.tasks.regression import RegressionMetrics
from deepspark_ops.evaluate.tasks.segmentation import SegmentationMetrics
from deepspark_ops.sizes import share_text

Examples = Mapping[int, Example]
Links = Mapping[str, str]
"""Id of a group of samples -> address."""
MAX_CONFUSED: Final = 30
MAX_SLICES: Final = 100
"""Values of a property in a table; ``metrics.json`` has all."""
_NOTES: Final[Mapping[str, str]] = {
    "rmse": "root of the mean squared residual",
    "mae": "mean distance of prediction and truth",
    "r2": "1: every prediction right, 0: no better than the mean",
    "bias": "predicted minus true; 0: as often above as below",
    "mse": "in the units of the net's input",
    "psnr": "higher is better",
    "mean_average_precision": "mean over the labels of the area under precision and recall",
    "macro_roc_auc": "50 %: no better than guessing",
    "micro_f1": "a label counts as answered above 50 %",
    "subset_accuracy": "not one label wrong",
    "roc_auc": "50 %: no better than guessing",
    "verification_accuracy": "alike or not, at the threshold that is best here",
    "equal_error_rate": "as many wrongly taken for alike as for different",
    "mean_iou": "mean over classes of overlap by union",
    "pixel_accuracy": "of all pixels that count",
    "time_step_accuracy": "of all time steps that count",
    "mean_accuracy": "each class counts the same",
}
MOST_TILES: Final = 5


def task_page(metrics: MetricsReport, examples: Examples, links: Links) -> TaskPage:
    """Return what the report of another task than classification shows, with the examples of ``wanted_examples``."""
    return _PAGES[metrics.task](metrics, examples, links)


def tiles_of(metrics: MetricsReport) -> list[Tile]:
    """Return the figures at the top, the main figure first."""
    rows = [row for row in metrics.rows() if row.value is not None and row.name not in ("loss", "best_threshold")]
    tiles = [Tile(row.label, row.text(), _NOTES.get(row.name, "")) for row in rows]
    return [*tiles[: MOST_TILES - 1], Tile("Samples", grouped(metrics.n_samples), _ignored(metrics))]


def _ignored(metrics: MetricsReport) -> str:
    return f"{grouped(metrics.n_ignored)} {metrics.counted} do not count" if metrics.n_ignored else "all count"


def _number(value: float | None) -> str:
    return "\u2013" if value is None else f"{value:.4g}"


def _lead(text: str, links: Links, where: str = BARS_LEAD) -> str:
    """Return a section's lead, with the place of the links if there are links."""
    return f"{text} {where}" if links else text


def _class_links(links: Links, n_classes: int) -> dict[int, str]:
    """Return position of a class or label -> address of its samples."""
    return {at: links[class_id(at)] for at in range(n_classes) if class_id(at) in links}


def _gallery(
    samples: Sequence[NamedSample], examples: Examples, text: Callable[[Example, float], list[str]]
) -> list[Shown]:
    shown_samples = [(sample, examples[sample.index]) for sample in samples[:MOST_SHOWN] if sample.index in examples]
    return [shown(example, text(example, sample.value)) for sample, example in shown_samples if example.pictures]


def _regression(metrics: MetricsReport, examples: Examples, links: Links) -> TaskPage:
    assert isinstance(metrics, RegressionMetrics)
    figures = metrics.figures
    cards = []
    for at, output in enumerate(figures.outputs[:MOST_OUTPUTS]):
        of = "" if len(figures.outputs) == 1 else f", output {output.name}"
        if output.residuals is not None:
            of_bars = bar_links(links, f"residual-{at}", len(output.residuals.counts))
            cards.append(Card(f"Residuals{of}", Markup(residual_chart(output.residuals, links=of_bars))))
        if output.density is not None:
            cards.append(Card(f"Predicted over true{of}", Markup(density_chart(output.density))))
    table = Table(
        ("Output", "RMSE", "Mean absolute error", "R2", "Mean residual", "Mean of the true values"),
        [
            (each.name, *map(_number, (each.rmse, each.mae, each.r2, each.bias, each.mean_true)))
            for each in figures.outputs
        ],
    )

    def value_texts(example: Example) -> list[str]:
        values = [np.asarray(part, np.float64).ravel()[:4] for part in (example.answers[0], example.target)]
        return [", ".join(map(_number, part)) for part in values]

    def value_lines(example: Example, value: float) -> list[str]:
        predicted, true = value_texts(example)
        return [predicted, f"true {true}"]

    pictures = _gallery(figures.worst, examples, value_lines)
    rows = [
        (str(sample.index), *value_texts(examples[sample.index]), _number(sample.value))
        for sample in figures.worst[:MOST_SHOWN]
        if sample.index in examples
    ]
    of_worst = None if pictures else Table(("Sample", "Predicted", "True", "Mean squared residual"), rows)
    return TaskPage(
        tiles_of(metrics),
        [
            Section(
                "Residuals",
                _lead("A residual is predicted minus true. The line is where prediction and truth agree.", links),
                cards,
            ),
            Section("Outputs", table=table),
        ],
        [Section("Largest errors", "Samples with the largest mean squared residual.", table=of_worst, shown=pictures)],
    )


def _reconstruction(metrics: MetricsReport, examples: Examples, links: Links) -> TaskPage:
    assert isinstance(metrics, ReconstructionMetrics)
    figures = metrics.figures
    of_bars = bar_links(links, "error", len(figures.errors.counts))
    chart = residual_chart(figures.errors, x_label="mean squared error of a sample", links=of_bars)
    cards = [Card("Errors of the samples", Markup(chart))]

    def error_lines(example: Example, value: float) -> list[str]:
        return [f"error {value:.4g}", f"sample {example.index}"]

    return TaskPage(
        tiles_of(metrics),
        [Section("Errors", _lead("How many samples have which mean squared error.", links), cards)],
        [
            Section(title, "What was given, and what the net gave back, in one scale of grey values.", shown=pictures)
            for title, pictures in (
                ("Worst samples", _gallery(figures.worst, examples, error_lines)),
                ("Best samples", _gallery(figures.best, examples, error_lines)),
            )
            if pictures
        ],
    )


def _multi_label(metrics: MetricsReport, examples: Examples, links: Links) -> TaskPage:
    assert isinstance(metrics, MultiLabelMetrics)
    figures = metrics.figures
    ranked = {label.name: label.ranked for label in figures.labels}
    cards = [*curve_cards(ranked), Card("Calibration", Markup(reliability_chart(figures.calibration)))]
    table = Table(
        ("Label", "Precision", "Recall", "F1", "Average precision", "ROC-AUC", "There", "Answered"),
        [
            (
                label.name,
                *map(share_text, (of_label.precision, of_label.recall, of_label.f1)),
                *map(share_text, (label.ranked.average_precision, label.ranked.roc_auc)),
                grouped(of_label.true_positives + of_label.false_negatives),
                grouped(of_label.true_positives + of_label.false_positives),
            )
            for label in figures.labels
            for of_label in (label.detection,)
        ],
        _class_links(links, len(figures.labels)),
    )
    return TaskPage(
        tiles_of(metrics),
        [
            Section(
                "Labels",
                _lead(
                    f"A label counts as answered above a probability of {share_text(figures.threshold)}.",
                    links,
                    "A label leads to samples.",
                ),
                table=table,
            ),
            Section(
                "At all thresholds",
                f"Calibration: of answers with a confidence, how many are right. Their mean distance (ECE) is "
                f"{share_text(figures.calibration.ece)}.",
                cards,
            ),
        ],
    )


def _embedding(metrics: MetricsReport, examples: Examples, links: Links) -> TaskPage:
    assert isinstance(metrics, EmbeddingMetrics)
    if metrics.neighbours is not None:
        return _neighbours(metrics, metrics.neighbours)
    figures = metrics.figures
    assert figures is not None
    cards = [*_distance_cards(figures, links), *curve_cards({"pairs": figures.ranked})]

    def distance_lines(example: Example, value: float) -> list[str]:
        first, second = (np.asarray(part, np.float64).ravel() for part in example.answers)
        is_same = bool(np.asarray(example.target).ravel()[0])
        return [f"distance {np.linalg.norm(first - second):.4g}", "alike" if is_same else "not alike"]

    threshold = (
        "" if figures.best_threshold is None else f" The best threshold is a distance of {figures.best_threshold:.4g}."
    )
    worst = _gallery(metrics.worst, examples, distance_lines)
    table = Table(("Figure", "Value"), [(row.label, row.text()) for row in metrics.rows()])
    return TaskPage(
        tiles_of(metrics),
        [
            Section(
                "Are two samples alike?",
                _lead(
                    f"{grouped(figures.n_pairs)} pairs, {grouped(figures.n_same)} of them alike; the nearer two vectors"
                    f" of {metrics.width} numbers are, the more alike.{threshold}",
                    links,
                ),
                cards,
                table,
            )
        ],
        [Section("Worst pairs", "Pairs with the largest contrastive loss.", shown=worst)] if worst else [],
    )


def _distance_cards(figures: Verification, links: Links) -> list[Card]:
    if figures.distances is None:
        return []
    n_bars = len(figures.distances.same.counts)
    of_bars = {chart: bar_links(links, chart, n_bars) for chart in PAIR_WORDS}
    charts = distance_charts(figures.distances, figures.best_threshold, of_bars)
    return [Card(PAIR_WORDS[chart], Markup(drawing)) for chart, drawing in charts.items()]


def _neighbours(metrics: EmbeddingMetrics, neighbours: Neighbours) -> TaskPage:
    lone_text = (
        f" {grouped(neighbours.n_alone)} are the only ones of their class and do not count."
        if neighbours.n_alone
        else ""
    )
    lead = (
        f"Each of {grouped(neighbours.n_compared)} samples is compared with all others by the distance of their "
        f"vectors of {metrics.width} numbers: is the nearest one of its class?{lone_text}"
    )
    table = Table(("Figure", "Value"), [(row.label, row.text()) for row in metrics.rows()])
    return TaskPage(tiles_of(metrics), [Section("Nearest neighbours", lead, table=table)])


def _segmentation(metrics: MetricsReport, examples: Examples, links: Links) -> TaskPage:
    assert isinstance(metrics, SegmentationMetrics)
    figures, counted = metrics.figures, metrics.counted
    names = [each.name for each in figures.classes]
    shares = bar_chart([(each.name, each.iou) for each in figures.classes], label="IoU by class")
    cards = [Card("IoU of each class", Markup(shares))]
    if len(names) <= MAX_CONFUSED:
        cards.append(Card(counted.capitalize(), Markup(confusion_chart(np.array(figures.confusion, np.int64), names))))
    table = Table(
        ("Class", "IoU", f"{counted.capitalize()} right", counted.capitalize(), "Found"),
        [
            (each.name, share_text(each.iou), share_text(each.accuracy), grouped(each.pixels), grouped(each.predicted))
            for each in figures.classes
        ],
        _class_links(links, len(names)),
    )
    lead = (
        "The image, then the true classes and those that the net found in colours over it; class 0 has none, pixels"
        " that do not count are grey."
        if metrics.unit == "pixel"
        else ""
    )
    worst = _gallery(
        figures.worst,
        examples,
        lambda example, value: [f"{share_text(value)} of its {counted} right", f"sample {example.index}"],
    )
    return TaskPage(
        tiles_of(metrics),
        [
            Section(
                "Classes",
                _lead(
                    f"IoU: {counted} of a class that were found, by those that are either. Rows of the matrix: true"
                    " classes.",
                    links,
                    "The name of a class leads to samples with the class.",
                ),
                cards,
                table,
            )
        ],
        [Section("Worst images" if metrics.unit == "pixel" else "Worst samples", lead, shown=worst)] if worst else [],
    )


_PAGES: Final[Mapping[TaskName, Callable[[MetricsReport, Examples, Links], TaskPage]]] = {
    "regression": _regression,
    "reconstruction": _reconstruction,
    "multi_label": _multi_label,
    "embedding": _embedding,
    "segmentation": _segmentation,
}


def slice_sections(metrics: MetricsReport) -> Sequence[Section]:
    """Return a section for each property and each result of the net; empty without slices."""
    return [
        _slice_section(column, [report for report in result.slices if report.column == column], of)
        for at, result in enumerate(metrics.results())
        for of in (f", {result.scored.score_blob}" if at else "",)
        for column in dict.fromkeys(report.column for report in result.slices)
    ]


def _slice_section(column: str, slices: Sequence[SliceReport], of: str) -> Section:
    sign = 1 if slices[0].main.higher_is_better else -1
    order = sorted(slices, key=lambda report: (sign * report.main.value, report.value))
    names = list(dict.fromkeys((row.name, row.label) for report in slices for row in report.rows))
    rows = []
    for report in order[:MAX_SLICES]:
        texts = {row.name: row.text() for row in report.rows}
        rows.append((report.value, *(texts.get(name, "\u2013") for name, _ in names), grouped(report.n_samples)))
    left_out = f", {MAX_SLICES} of {grouped(len(slices))}" if len(slices) > MAX_SLICES else ""
    lead = f"The figures of the samples with each {column}, the worst first{left_out}."
    return Section(
        f"By {column}{of}", lead, table=Table((column.capitalize(), *(label for _, label in names), "Samples"), rows)
    )
