"""The page of a simulation, in the style of a run's report: a single file, no network, light, dark and on paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import resources
from statistics import fmean
from typing import Any, Final

from jinja2 import Template
from markupsafe import Markup

from deepspark_ops.evaluate.charts import Band, Line, grouped, line_chart, line_table, share_tick
from deepspark_ops.evaluate.report import N_COLOURS
from deepspark_ops.page_templates import template_environment
from deepspark_ops.planning.plan_view import duration
from deepspark_ops.simulation.advice import value_text
from deepspark_ops.simulation.report import SINGLE_RUN, Group, SimulationReport
from deepspark_ops.simulation.results import CurvePoint
from deepspark_ops.trials.page import bytes_text

_STYLES: Final = ("", " dash", " thin", " thin dash")
"""Six colours, then the same with dashes, then thin."""


def render_page(report: SimulationReport) -> str:
    """Return the page."""
    tested = [group for group in report.groups if any(row.curve for row in group.rows)]
    styles = {name_of(group): f"line-{at % N_COLOURS}{_STYLES[at // N_COLOURS % len(_STYLES)]}"
              for at, group in enumerate(tested)}  # fmt: skip
    return _page().render(
        style=_css("deepspark_ops.evaluate", "report.css") + _css("deepspark_ops.simulation", "page.css"),
        report=report,
        styles=styles,
        name=name_of,
        value=lambda value: value_text(report, value) or "\u2013",
        charts=_charts(report, tested, styles),
    )


def name_of(group: Group) -> str:
    """Return the page's name of a group."""
    return "one worker" if group.strategy == SINGLE_RUN else f"{group.strategy}, {group.workers} workers"


def mean_curve(group: Group, x_of: Callable[[CurvePoint], float]) -> list[tuple[float, float, float, float]]:
    """Return (x, mean, lowest, highest) of the seeds at each test that all seeds have, by position in the curve.

    Args:
        group: Its rows have tests at the same clocks, or nearly so, at different times.
        x_of: Of a point; the mean over seeds is taken.
    """
    curves = [row.curve for row in group.rows if row.curve]
    together = zip(*curves, strict=False)  # a failed run has fewer tests
    return [
        (fmean(map(x_of, points)), fmean(values), min(values), max(values))
        for points in together
        if (values := [point.value for point in points])
    ]


@cache
def _page() -> Template:
    environment = template_environment("deepspark_ops.simulation")
    environment.filters |= {"duration": duration, "bytes": bytes_text, "grouped": grouped}
    return environment.get_template("page.html.jinja")


def _css(package: str, name: str) -> Markup:
    return Markup(resources.files(package).joinpath(name).read_text(encoding="utf-8"))


def _charts(report: SimulationReport, groups: Sequence[Group], styles: dict[str, str]) -> list[dict[str, Any]]:
    axes: tuple[tuple[str, str, Callable[[CurvePoint], float]], ...] = (
        ("virtual time", "virtual seconds", lambda point: point.virtual_s),
        ("the clock", "minibatches over all workers", lambda point: float(point.clock)),
    )
    charts = []
    for over, x_label, x_of in axes:
        lines, bands = [], []
        for group in groups:
            name, style = name_of(group), styles[name_of(group)]
            curve = mean_curve(group, x_of)
            lines.append(Line(name, [(x, mean) for x, mean, _, _ in curve], style, has_marks=len(curve) <= 60))
            if len(group.rows) > 1:
                bands.append(Band([(x, low, high) for x, _, low, high in curve], style))
        if not lines:
            continue
        if report.target is not None:
            last = max(line.points[-1][0] for line in lines)
            text = f"target {value_text(report, report.target)}"
            lines.append(Line(text, [(0.0, report.target), (last, report.target)], "target"))
        title = f"{report.figure} over {over}"
        y_format = partial(_axis_text, report)
        chart = line_chart(lines, label=title, x_label=x_label, y_format=y_format, width=500, height=300, bands=bands)
        table = line_table(lines, x_label=x_label, y_format=y_format)
        charts.append({"title": title, "chart": Markup(chart + table)})
    return charts


def _axis_text(report: SimulationReport, value: float) -> str:
    return share_tick(value) if report.higher_is_better else f"{value:.4g}"
