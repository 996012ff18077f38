"""The templates of the pages, with automatic escaping, and the form of numbers in the pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Template
from markupsafe import Markup

from deepspark_ops.evaluate.comparison.paired import p_text
from deepspark_ops.evaluate.tasks.metrics_head import figure_text
from deepspark_ops.page_templates import template_environment
from deepspark_ops.run_view.chart_lines import is_share
from deepspark_ops.sizes import size_text

_ALL_DIGITS_BELOW: Final = 1e12
"""The loss of a net that diverges has more digits than a table has room for."""


@cache
def template(name: str) -> Template:
    """Return a template of the folder ``html``."""
    environment = template_environment("deepspark_ops.operators.pages", "html", keeps_last_newline=False)
    environment.filters |= {
        "number": _number,
        "duration": _duration,
        "size": size_text,
        "clock_time": _clock_time,
        "local_time": _local_time,
        "sparkline": sparkline,
        "p_text": p_text,
        "figure": figure,
        "interval": _interval,
        "filename": lambda path: Path(str(path)).name,
    }
    environment.tests |= {"share": is_share}
    return environment.get_template(name)


def _number(value: float | None, digits: int = 3) -> str:
    """Return a number with ``digits`` significant digits, whole numbers with commas at thousands; a dash for None.

    Example:
        >>> _number(4480.4), _number(0.03125), _number(1.5e-7), _number(7.7e20), _number(None)
        ('4,480', '0.0312', '1.5e-07', '7.7e+20', '\u2013')
    """
    if value is None:
        return "\u2013"
    if isinstance(value, int) or 1000 <= abs(value) < _ALL_DIGITS_BELOW:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def figure(judged: Mapping[str, Any] | None, *, wants_name: bool = True) -> str:
    """Return the text of a run's main figure from the figure's JSON; a dash for None.

    Example:
        >>> figure({"label": "RMSE", "value": 0.12345, "is_share": False})
        'RMSE 0.1235'
    """
    if judged is None:
        return "\u2013"
    text = figure_text(judged["value"], is_share=judged["is_share"])
    return f"{judged['label']} {text}" if wants_name else text


def _interval(judged: Mapping[str, Any] | None) -> str:
    """Return the text of a figure's interval; empty for an unknown interval."""
    if judged is None or judged["interval"] is None:
        return ""
    return " to ".join(figure({**judged, "value": bound}, wants_name=False) for bound in judged["interval"])


def _duration(seconds: float | None) -> str:
    """Return a time span; a dash for none.

    Example:
        >>> [_duration(s) for s in (0.4, 72.0, 5400.0, 200_000.0)]
        ['0 s', '1 min 12 s', '1 h 30 min', '2 d 7 h']
    """
    if seconds is None:
        return "\u2013"
    whole_seconds = round(seconds)
    for unit, small, size, part in (("d", "h", 86_400, 3_600), ("h", "min", 3_600, 60), ("min", "s", 60, 1)):
        if whole_seconds >= size:
            return f"{whole_seconds // size} {unit} {whole_seconds % size // part} {small}"
    return f"{whole_seconds} s"


def _clock_time(seconds: float | None) -> str:
    """Return the time of day as HTML, as ``_local_time``; empty for None."""
    return "" if seconds is None else _time(seconds, "%H:%M:%S UTC", Markup(" data-seconds"))


def _local_time(moment: float | str | None) -> str:
    """Return a moment as HTML; a dash for None. ``times.js`` writes the moment in the reader's zone, with UTC as title.

    Args:
        moment: Seconds since the epoch, or ISO 8601.

    Example:
        >>> _local_time(1769832306.0)
        Markup('<time datetime="2026-01-31T04:05:06Z" title="2026-01-31 04:05:06 UTC">2026-01-31 04:05 UTC</time>')
        >>> _local_time("2026-01-31T04:05:06+00:00") == _local_time(1769832306.0)
        True
    """
    if moment is None:
        return "\u2013"
    seconds = datetime.fromisoformat(moment).timestamp() if isinstance(moment, str) else moment
    return _time(seconds, "%Y-%m-%d %H:%M UTC", Markup(""))


def _time(seconds: float, form: str, attribute: Markup) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    title = moment.strftime("%Y-%m-%d %H:%M:%S UTC")
    text = Markup('<time datetime="{}" title="{}"{}>{}</time>')
    return text.format(moment.strftime("%Y-%m-%dT%H:%M:%SZ"), title, attribute, moment.strftime(form))


def sparkline(curve: Sequence[Sequence[float]], width: float = 100.0, height: float = 24.0) -> str:
    """Return the points of an SVG polyline for (x, y), ascending in x; empty for less than two points.

    Example:
        >>> sparkline([(0, 2.0), (50, 1.0), (100, 0.0)])
        '0.0,2.0 50.0,12.0 100.0,22.0'
    """
    if len(curve) < 2:
        return ""
    x0, x1 = curve[0][0], curve[-1][0]
    low, high = min(y for _, y in curve), max(y for _, y in curve)
    x_scale, y_scale = width / ((x1 - x0) or 1.0), (height - 4.0) / ((high - low) or 1.0)
    return " ".join(f"{(x - x0) * x_scale:.1f},{2.0 + (high - y) * y_scale:.1f}" for x, y in curve)
