"""Page of a comparison, like the report of a run: a single self-contained file, for light, dark and paper."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Final

from jinja2 import Template
from markupsafe import Markup

from deepspark_ops.evaluate.charts import Line, grouped, line_chart, line_table, share_tick
from deepspark_ops.evaluate.report import N_COLOURS
from deepspark_ops.evaluate.tasks.metrics_head import MainFigure
from deepspark_ops.page_templates import template_environment
from deepspark_ops.sizes import share_text, size_text
from deepspark_ops.trials.course import AccuracyPoint, Course
from deepspark_ops.trials.table import Row, Table

_STYLES: Final = ("", " dash", " thin", " thin dash")
"""Styles of lines: six colours, then the same colours dashed, then thin."""


def render_page(table: Table, courses: Mapping[int, Course], settings: Mapping[str, str]) -> str:
    """Return the page.

    Args:
        table: The table.
        courses: How each trial's training went, by number.
        settings: What all trials have in common, name -> text.
    """
    tested = [row for row in table.rows if courses[row.number].tests]
    lines = {row.number: _style(at) for at, row in enumerate(tested)}
    return _page().render(
        style=Markup(resources.files("deepspark_ops.evaluate").joinpath("report.css").read_text(encoding="utf-8")),
        own_style=Markup(resources.files("deepspark_ops.trials").joinpath("page.css").read_text(encoding="utf-8")),
        table=table,
        when=table.created[:16].replace("T", " "),
        n_failed=sum(row.status == "failed" for row in table.rows),
        tiles=_tiles(table),
        best=_best(table.rows),
        figure=next((row.figure for row in table.rows if row.figure is not None), None),
        lines=lines,
        charts=_charts(tested, courses, lines, table.target_accuracy),
        settings=settings,
    )


@cache
def _page() -> Template:
    environment = template_environment("deepspark_ops.trials")
    environment.filters |= {
        "rank": _rank, "grouped": grouped, "seconds": seconds_text, "bytes": bytes_text,
        "number": _number_text,
    }  # fmt: skip
    return environment.get_template("page.html.jinja")


def seconds_text(seconds: float | None) -> str:
    """Return a training time as text; a dash for None.

    Example:
        >>> [seconds_text(one) for one in (0.234, 12.34, 754.0, 9000.0, None)]
        ['0.23 s', '12.3 s', '12 min 34 s', '2 h 30 min', '\u2013']
    """
    if seconds is None:
        return "\u2013"
    if seconds < 100:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes, rest_s = divmod(round(seconds), 60)
    return f"{minutes} min {rest_s} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def bytes_text(count: int | None) -> str:
    """Return a number of bytes as text; a dash for None."""
    return "\u2013" if count is None else size_text(count)


def _number_text(value: float | None) -> str:
    return "\u2013" if value is None else grouped(value) if value >= 100 else f"{value:.3g}"


def _style(at: int) -> str:
    return f"line-{at % N_COLOURS}{_STYLES[at // N_COLOURS % len(_STYLES)]}"


def _rank(figure: MainFigure) -> float:
    """Return a number, larger for a better value."""
    return figure.value if figure.higher_is_better else -figure.value


_RankedColumn = tuple[str, Callable[[Row], float | None], bool]
_COLUMNS: Final[tuple[_RankedColumn, ...]] = (
    ("accuracy", lambda row: row.accuracy, True),
    ("figure", lambda row: None if row.figure is None else _rank(row.figure), True),
    ("seconds_to_target", lambda row: row.seconds_to_target, False),
    ("images_per_s", lambda row: row.images_per_s, True),
    ("moved_bytes", lambda row: row.moved_bytes, False),
)
"""Column, its value, and whether larger values are better."""


def _best(rows: Sequence[Row]) -> dict[str, float]:
    """Return the best value of each column among the complete trials."""
    best_values = {}
    for name, value_of, is_greatest in _COLUMNS:
        values = [value for row in rows if row.is_complete and (value := value_of(row)) is not None]
        if len(values) > 1:
            best_values[name] = max(values) if is_greatest else min(values)
    return best_values


def _tiles(table: Table) -> list[dict[str, str]]:
    rows = [row for row in table.rows if row.status == "finished"]
    reached = [row for row in rows if row.seconds_to_target is not None]
    target = share_text(table.target_accuracy).replace(" ", "\N{NO-BREAK SPACE}")
    tiles = []
    if best := _first(rows, lambda row: None if row.accuracy is None else -row.accuracy):
        tiles.append(("Best accuracy", share_text(best.accuracy), best.name))
    if best := _first(rows, lambda row: None if row.figure is None else -_rank(row.figure)):
        assert best.figure is not None
        tiles.append((f"Best {best.figure.label}", best.figure.text(), best.name))
    if best := _first(reached, lambda row: row.seconds_to_target):
        tiles.append((f"Fastest to {target}", seconds_text(best.seconds_to_target), best.name))
    if best := _first(reached, lambda row: row.moved_bytes):
        tiles.append((f"Fewest bytes, of those that reached {target}", bytes_text(best.moved_bytes), best.name))
    return [{"name": name, "value": value, "note": note} for name, value, note in tiles]


def _first(rows: Iterable[Row], key: Callable[[Row], float | None]) -> Row | None:
    candidates = [(value, row.number, row) for row in rows if (value := key(row)) is not None]
    return min(candidates)[2] if candidates else None


def _charts(
    rows: Sequence[Row], courses: Mapping[int, Course], styles: Mapping[int, str], target: float | None
) -> list[dict[str, Any]]:
    """Return accuracy over training time and over the clock, a line per trial; none without tests."""
    axes: tuple[tuple[str, str, Callable[[AccuracyPoint], float]], ...] = (
        ("Accuracy over training time", "training time, s", lambda point: point.seconds),
        ("Accuracy over the clock", "clock, minibatches", lambda point: float(point.clock)),
    )
    charts = []
    for title, x_label, x_of in axes:
        lines = [
            Line(row.name, points, styles[row.number], has_marks=len(points) <= 60)
            for row in rows
            if (points := sorted((x_of(point), point.accuracy) for point in courses[row.number].tests))
        ]
        if lines and target is not None:
            last = max(line.points[-1][0] for line in lines)
            lines.append(Line(f"target {share_text(target)}", [(0.0, target), (last, target)], "target"))
        if lines:
            chart = line_chart(
                lines, label=title, x_label=x_label, y_format=share_tick,
                width=500, height=280,
            )  # fmt: skip
            table = line_table(lines, x_label=x_label, y_format=share_tick)
            charts.append({"title": title, "chart": Markup(chart + table)})
    return charts
