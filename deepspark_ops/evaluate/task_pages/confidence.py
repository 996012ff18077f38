"""Report sections about a classification's probabilities: each class against the rest, and calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from deepspark_ops.evaluate.charts import grouped
from deepspark_ops.evaluate.figures.calibration import Calibration
from deepspark_ops.evaluate.figures.figure_charts import (
    drawn_curves,
    precision_recall_curves,
    reliability_chart,
    roc_curves,
)
from deepspark_ops.evaluate.figures.ranking import Ranked, Ranking
from deepspark_ops.evaluate.task_pages.parts import Card, Section, Table
from deepspark_ops.evaluate.task_pages.sample_groups import BARS_LEAD, bar_links
from deepspark_ops.evaluate.tasks.classification import ClassificationMetrics
from deepspark_ops.sizes import share_text

MAX_ROWS = 100
"""Classes in the table, those that are ranked worst; ``metrics.json`` has all."""


def confidence_sections(metrics: ClassificationMetrics, links: Mapping[str, str]) -> Sequence[Section]:
    """Return the sections, none of files without these figures; ``links``: id of a group of samples -> address."""
    names = [class_figures.name for class_figures in metrics.classes]
    ranked = [] if metrics.ranking is None else [_ranking_section(metrics.ranking, names)]
    calibrated = [] if metrics.calibration is None else [_calibration_section(metrics.calibration, links)]
    return [*ranked, *calibrated]


def curve_cards(ranked: Mapping[str, Ranked]) -> list[Card]:
    """Return the cards of ROC and of precision over recall with their values; none without a curve."""
    if not (legend := drawn_curves(ranked)):
        return []
    roc_title = "ROC curve" if len(legend) == 1 else "ROC curves"
    curves = {roc_title: roc_curves(ranked), "Precision over recall": precision_recall_curves(ranked)}
    return [Card(title, Markup(chart), legend, Markup(table)) for title, (chart, table) in curves.items()]


def _ranking_section(ranking: Ranking, names: Sequence[str]) -> Section:
    order = sorted(range(len(names)), key=lambda at: (ranking.classes[at].roc_auc or 0.0, at))
    curves = {"all classes together": ranking.micro} | {names[at]: ranking.classes[at] for at in order}
    share = [share_text(value) for value in (ranking.macro_roc_auc, ranking.macro_average_precision)]
    within = max(max(curve.roc_auc_within, curve.average_precision_within) for curve in ranking.classes)
    counted = f" Scores were counted in bins: the figures are exact to {within:.2g}." if within else ""
    left_out = f" The {MAX_ROWS} that are ranked worst." if len(names) > MAX_ROWS else ""
    table = Table(
        ("Class", "ROC-AUC", "Average precision", "Samples"),
        [
            (names[at], share_text(curve.roc_auc), share_text(curve.average_precision), grouped(curve.positives))
            for at in order[:MAX_ROWS]
            for curve in (ranking.classes[at],)
        ],
    )
    lead = (
        "Each class against the rest, by its probability, at all thresholds; the classes that are ranked worst first. "
        f"Mean ROC-AUC {share[0]}, mean average precision {share[1]}.{counted}{left_out}"
    )
    return Section("Ranking", lead, curve_cards(curves), table)


def _calibration_section(calibration: Calibration, links: Mapping[str, str]) -> Section:
    of_bars = bar_links(links, "confidence", len(calibration.bins))
    direction = "more often" if calibration.accuracy > calibration.mean_confidence else "less often"
    lead = (
        f"The net is right {share_text(calibration.accuracy)} of the time and says so with a mean confidence of "
        f"{share_text(calibration.mean_confidence)}: {direction} than it says. "
        f"Expected calibration error {share_text(calibration.ece)}, "
        f"the mean distance of the bars from the diagonal; at most {share_text(calibration.largest_error)} in one bar."
        f"{' ' + BARS_LEAD if of_bars else ''}"
    )
    return Section("Calibration", lead, [Card("Reliability", Markup(reliability_chart(calibration, of_bars)))])
