"""Charts of the page "Samples": bars of confidences, residuals, errors or distances, each with its samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from markupsafe import Markup

from deepspark_ops.evaluate.figures.calibration import Calibration, ReliabilityBin
from deepspark_ops.evaluate.figures.embedding import PairDistances
from deepspark_ops.evaluate.figures.regression import ResidualHistogram
from deepspark_ops.evaluate.metrics import classes_of
from deepspark_ops.evaluate.tasks.embedding import EmbeddingMetrics
from deepspark_ops.evaluate.tasks.metrics_head import MetricsReport
from deepspark_ops.evaluate.tasks.reconstruction import ReconstructionMetrics
from deepspark_ops.evaluate.tasks.regression import RegressionMetrics


def chart_of(metrics: MetricsReport, output: int) -> dict[str, Any] | None:
    """Return kind and bars of the chart whose bars lead to samples; None without a chart."""
    kind: str
    bars: Any
    if isinstance(metrics, RegressionMetrics) and output < len(metrics.figures.outputs):
        kind, bars = "residual", metrics.figures.outputs[output].residuals
    elif isinstance(metrics, ReconstructionMetrics):
        kind, bars = "error", metrics.figures.errors
    elif isinstance(metrics, EmbeddingMetrics):
        kind, bars = "distance", metrics.figures and metrics.figures.distances
    else:
        kind, bars = "confidence", getattr(classes_of(metrics), "calibration", None)
    return None if bars is None else {"kind": kind, **asdict(bars)}


def drawn_bars(chart: Mapping[str, Any] | None, output: int, address_of: Callable[..., str]) -> dict[str, Any] | None:
    """Return title and drawing of a chart of ``chart_of``; each bar leads to its samples."""
    if chart is None:
        return None
    from deepspark_ops.evaluate.figures.figure_charts import reliability_chart, residual_chart  # OpenCV

    bars = {name: value for name, value in chart.items() if name != "kind"}
    if chart["kind"] == "distance":
        return _drawn_distances(bars, address_of)
    if chart["kind"] == "confidence":
        calibration = Calibration(**{**bars, "bins": tuple(ReliabilityBin(**bar) for bar in bars["bins"])})
        links = {
            at: address_of(min_probability=bar.low, max_probability=bar.high) for at, bar in enumerate(calibration.bins)
        }
        return {"title": "Confidence and right answers", "drawing": Markup(reliability_chart(calibration, links))}
    histogram = ResidualHistogram(**bars)
    bounds = {at: histogram.bounds(at) for at in range(len(histogram.counts))}
    if chart["kind"] == "error":
        links = {at: address_of(min_loss=low, max_loss=high) for at, (low, high) in bounds.items()}
        drawing = residual_chart(histogram, x_label="mean squared error of a sample", links=links)
        return {"title": "Errors of the samples", "drawing": Markup(drawing)}
    links = {
        at: address_of(output=output or None, min_residual=low, max_residual=high) for at, (low, high) in bounds.items()
    }
    return {"title": "Residuals", "drawing": Markup(residual_chart(histogram, links=links))}


def _drawn_distances(bars: Mapping[str, Any], address_of: Callable[..., str]) -> dict[str, Any]:
    from deepspark_ops.evaluate.figures.figure_charts import distance_charts

    distances = PairDistances(*(ResidualHistogram(**bars[kind]) for kind in ("same", "other")))
    bounds = {at: distances.same.bounds(at) for at in range(len(distances.same.counts))}
    links = {
        kind: {at: address_of(same=same, min_distance=low, max_distance=high) for at, (low, high) in bounds.items()}
        for kind, same in (("same", 1), ("other", 0))
    }
    charts = distance_charts(distances, None, links)
    return {"title": "Distances of alike and of other pairs", "drawing": Markup("".join(charts.values()))}
