"""Charts of figures as SVG text, in the manner of ``charts.py``: curves, reliability, residuals, densities, bars.

Below the chart of a histogram are the bars as a folded table.

Colours are classes of the page's CSS: ``line-<n>``, ``box`` for a bar, ``gap`` for what is missing or too much,
``guide`` for a line to compare with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from deepspark_ops.evaluate.charts import (
    Line,
    Scale,
    grouped,
    line_chart,
    line_table,
    linked,
    nice_ticks,
    value_table,
    y_tick,
)
from deepspark_ops.evaluate.figures.calibration import Calibration
from deepspark_ops.evaluate.figures.embedding import PairDistances
from deepspark_ops.evaluate.figures.ranking import Curve, Ranked
from deepspark_ops.evaluate.figures.regression import Density, ResidualHistogram
from deepspark_ops.sizes import share_text

MAX_CURVES = 6
"""Each curve has a colour of its own; more lines are not told apart by their colours."""
MAX_BARS = 60
_WIDTH, _HEIGHT = 500, 300
_SIDE = 320


def roc_curves(ranked: Mapping[str, Ranked]) -> tuple[str, str]:
    """Return the ROC curves of up to ``MAX_CURVES`` classes, by name, beside the line of a guessing net.

    Classes without a curve are left out; at least one has a curve.

    Returns:
        The chart, and its values as a folded table.
    """
    return _curves(
        [(f"{name}: area {curve.roc_auc:.4f}", curve.roc) for name, curve in _with_curve(ranked)],
        Line("by chance", [(0.0, 0.0), (1.0, 1.0)], "guide dash"),
        label="ROC curves: true positive rate over false positive rate",
        x_label="false positive rate",
    )


def precision_recall_curves(ranked: Mapping[str, Ranked]) -> tuple[str, str]:
    """Return the curves of precision over recall of up to ``MAX_CURVES`` classes, as ``roc_curves`` does."""
    curves = _with_curve(ranked)
    return _curves(
        [
            (f"{name}: average precision {curve.average_precision:.4f}", curve.precision_recall)
            for name, curve in curves
        ],
        Line("", [(0.0, 0.0), (1.0, 0.0)], "none"),  # both axes from 0 to 1
        label="Precision over recall",
        x_label="recall",
    )


def drawn_curves(ranked: Mapping[str, Ranked]) -> list[Line]:
    """Return the legend of the two charts above: a name and a style for each curve."""
    return [Line(name, (), f"line-{at}") for at, (name, _) in enumerate(_with_curve(ranked))]


def reliability_chart(calibration: Calibration, links: Mapping[int, str] | None = None) -> str:
    """Return the share of right answers over the confidence, a bar a bin, with the distance to the diagonal.

    ``links``: position of a bin -> address that the bar leads to.
    """
    area = _Area((0.0, 0.0), (1.0, 1.0), _SIDE + 60, _SIDE)
    label = "Reliability: share of right answers over confidence"
    parts = [area.start(label, "confidence of the answer", "right", has_links=bool(links))]
    for at, bar in enumerate(calibration.bins):
        if bar.confidence is None or bar.accuracy is None:
            continue
        title = (
            f"{_counted(bar.count, 'answer')} with confidence {bar.low:.3g} to {bar.high:.3g}: "
            f"{share_text(bar.accuracy)} right, mean confidence {share_text(bar.confidence)}"
        )
        low, high = sorted((bar.accuracy, bar.confidence))
        boxes = (
            area.box("box", bar.low, bar.high, 0.0, bar.accuracy, title),
            area.box("gap", bar.low, bar.high, low, high, title),
        )
        parts.append(linked("".join(boxes), title, (links or {}).get(at)))
    parts.append(area.line("guide dash", (0.0, 0.0), (1.0, 1.0)))
    rows = [
        (f"{bar.low:.3g} to {bar.high:.3g}", grouped(bar.count), share_text(bar.accuracy), share_text(bar.confidence))
        for bar in calibration.bins
    ]
    return "".join([*parts, "</svg>", value_table(("confidence", "answers", "right", "mean confidence"), rows)])


def residual_chart(
    residuals: ResidualHistogram,
    *,
    x_label: str = "predicted minus true",
    counted_unit: str = "sample",
    guide: float | None = 0.0,
    links: Mapping[int, str] | None = None,
) -> str:
    """Return a bar for each interval of a residual or another value.

    A line marks the value ``guide``. ``links``: position of a bar -> address that the bar leads to.
    """
    n = len(residuals.counts)
    high = residuals.low + n * residuals.width
    area = _Area((residuals.low, 0.0), (high, float(max(residuals.counts))), _WIDTH, 240)
    parts = [area.start("Histogram", _with_outside(x_label, residuals), f"{counted_unit}s", has_links=bool(links))]
    rows = []
    for at, count in enumerate(residuals.counts):
        if count:
            bar_start, bar_end = residuals.bounds(at)
            bounds = f"{bar_start:.4g} to {bar_end:.4g}"
            rows.append((bounds, grouped(count)))
            title = f"{bounds}: {_counted(count, counted_unit)}"
            bar = area.box("box", bar_start, bar_end, 0.0, count, title)
            parts.append(linked(bar, title, (links or {}).get(at)))
    if guide is not None and residuals.low < guide < high:
        parts.append(area.line("guide", (guide, area.low[1]), (guide, area.high[1])))
    return "".join([*parts, "</svg>", value_table((x_label, f"{counted_unit}s"), rows)])


def distance_charts(
    distances: PairDistances, threshold: float | None, links: Mapping[str, Mapping[int, str]]
) -> dict[str, str]:
    """Return the charts ``same`` and ``other`` of the distances of pairs; a kind without a pair has no chart.

    A line marks ``threshold``. ``links``: chart -> position of a bar -> address that the bar leads to.
    """
    kinds = (("same", distances.same, "alike pair"), ("other", distances.other, "other pair"))
    return {
        chart: residual_chart(bars, x_label="distance", counted_unit=word, guide=threshold, links=links[chart])
        for chart, bars, word in kinds
        if any(bars.counts)
    }


def density_chart(density: Density) -> str:
    """Return predicted over true values, a square the stronger the more samples, with the line of no error."""
    width = density.width
    n_rows, n_columns = len(density.counts), len(density.counts[0])
    low = density.low_true, density.low_predicted
    area = _Area(low, (low[0] + n_columns * width, low[1] + n_rows * width), _SIDE + 60, _SIDE)
    most = max(max(row) for row in density.counts)
    parts = [area.start("Predicted over true values", "true value", "predicted")]
    for row, counts in enumerate(density.counts):
        bottom = density.low_predicted + row * width
        for column, count in enumerate(counts):
            if count:
                column_start = density.low_true + column * width
                title = f"true from {column_start:.4g}, predicted from {bottom:.4g}: {_counted(count, 'sample')}"
                opacity = 0.12 + 0.88 * (count / most) ** 0.5
                parts.append(
                    area.box("box", column_start, column_start + width, bottom, bottom + width, title, opacity=opacity)
                )
    first, last = max(area.low), min(area.high)
    if first < last:
        parts.append(area.line("guide dash", (first, first), (last, last)))
    return "".join([*parts, "</svg>"])


def bar_chart(shares: Sequence[tuple[str, float | None]], *, label: str) -> str:
    """Return a lying bar for each name, e.g. the IoU of each class, in the order given, ``MAX_BARS`` at most.

    A share is in [0, 1]; None: nothing to measure.
    """
    shown = shares[:MAX_BARS]
    names = [name if len(name) <= 20 else name[:19] + "…" for name, _ in shown]
    x_bar, line = 16 + 6.8 * max(len(name) for name in names), 20
    width, height = x_bar + 300 + 56, line * len(shown) + 8
    parts = [
        f'<svg class="chart" viewBox="0 0 {width:.0f} {height}" style="max-width:{width:.0f}px" role="img" '
        f'aria-label="{escape(label)}">'
    ]
    for at, (name, (full_name, share)) in enumerate(zip(names, shown, strict=True)):
        top = 4 + at * line
        text = share_text(share)
        parts.append(
            f'<g><text class="tick" x="{x_bar - 8:.1f}" y="{top + 13}" text-anchor="end">{escape(name)}</text>'
            f'<rect class="cell" x="{x_bar:.1f}" y="{top + 3}" width="300" height="13" rx="2.5"/>'
            f'<rect class="box" x="{x_bar:.1f}" y="{top + 3}" width="{300 * (share or 0.0):.1f}" height="13" rx="2.5"/>'
            f'<text class="tick" x="{x_bar + 308:.1f}" y="{top + 13}">{text}</text>'
            f"<title>{escape(full_name)}: {text}</title></g>"
        )
    return "".join([*parts, "</svg>"])


class _Area:
    """A chart's inside: draws boxes and lines by values, from ``low`` to ``high`` of each axis."""

    def __init__(self, low: tuple[float, float], high: tuple[float, float], width: int, height: int) -> None:
        self.low, self.high = low, high
        self._size = width, height
        self._right, self._bottom = width - 20, height - 40
        self._axis_x = 30 + 6.6 * max(len(f"{tick:g}") for tick in nice_ticks(low[1], high[1], 5))
        self._x = Scale(low[0], high[0], self._axis_x, self._right)
        self._y = Scale(low[1], high[1], self._bottom, 12)

    def start(self, label: str, x_label: str, y_label: str, *, has_links: bool = False) -> str:
        """Return the opening tag, grid and ticks; a screen reader reads links in a group, not in an image."""
        role = "group" if has_links else "img"
        width, height = self._size
        x_ticks, y_ticks = (
            [tick for tick in nice_ticks(low, high, 5) if low <= tick <= high]
            for low, high in zip(self.low, self.high, strict=True)
        )
        middle, below = (self._axis_x + self._right) / 2, self._bottom + 16
        parts = [
            f'<svg class="chart" viewBox="0 0 {width} {height}" role="{role}" aria-label="{escape(label)}">',
            *(y_tick(self._y(tick), f"{tick:g}", self._axis_x, self._right) for tick in y_ticks),
            *(
                f'<text class="tick" x="{self._x(tick):.1f}" y="{below}" text-anchor="middle">{tick:g}</text>'
                for tick in x_ticks
            ),
            f'<text class="axis" x="{middle:.1f}" y="{height - 6}" text-anchor="middle">{escape(x_label)}</text>'
            f'<text class="axis" transform="translate(11 {self._bottom / 2:.1f}) rotate(-90)" text-anchor="middle">'
            f"{escape(y_label)}</text>",
        ]
        return "".join(parts)

    def box(
        self, style: str, x_from: float, right: float, bottom: float, top: float, title: str, *, opacity: float = 1.0
    ) -> str:
        """Return a rectangle between these values."""
        x, y = self._x(x_from), self._y(top)
        strength = f' fill-opacity="{opacity:.2f}"' if opacity < 1.0 else ""
        return (
            f'<rect class="{style}" x="{x:.1f}" y="{y:.1f}" width="{max(self._x(right) - x - 0.5, 0.5):.1f}" '
            f'height="{max(self._y(bottom) - y, 0.5):.1f}"{strength}><title>{escape(title)}</title></rect>'
        )

    def line(self, style: str, start: tuple[float, float], end: tuple[float, float]) -> str:
        """Return a straight line between two points."""
        ends = " ".join(f"{self._x(x):.1f},{self._y(y):.1f}" for x, y in (start, end))
        return f'<polyline class="line {style}" points="{ends}"/>'


def _with_curve(ranked: Mapping[str, Ranked]) -> list[tuple[str, Ranked]]:
    return [(name, curve) for name, curve in ranked.items() if curve.roc][:MAX_CURVES]


def _curves(curves: Sequence[tuple[str, Curve]], guide: Line, *, label: str, x_label: str) -> tuple[str, str]:
    lines = [Line(name, points, f"line-{at}") for at, (name, points) in enumerate(curves)]
    chart = line_chart([guide, *lines], label=label, x_label=x_label, y_format=_share, width=_WIDTH, height=_HEIGHT)
    return chart, line_table(lines, x_label=x_label, y_format=_share)


def _counted(count: int, word: str) -> str:
    return f"{grouped(count)} {word}{'' if count == 1 else 's'}"


def _with_outside(x_label: str, residuals: ResidualHistogram) -> str:
    outside = residuals.below + residuals.above
    return f"{x_label} ({grouped(outside)} further out)" if outside else x_label


def _share(value: float) -> str:
    return f"{value:.4g}"
