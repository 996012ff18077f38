"""A result as a piece of HTML for a notebook. Every value is escaped; no script, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from jinja2 import Template

from deepspark_ops.page_templates import template_environment

Points = Sequence[tuple[float, float]]
_COLOURS: Final = ("#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2")
_WIDTH: Final = 460
_HEIGHT: Final = 140
_X_MIN: Final = 62
_X_MAX: Final = _WIDTH - 8
_BOTTOM: Final = _HEIGHT - 20


@dataclass(frozen=True)
class CardTable:
    """A table in a card: names of the columns, and texts."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


def card(
    title: str,
    folder_text: str,
    *,
    note: str = "",
    rows: Mapping[str, object] | None = None,
    curves: Mapping[str, Mapping[str, Points]] | None = None,
    pictures: Sequence[tuple[str, str]] = (),
    table: CardTable | None = None,
    warnings: Sequence[str] = (),
) -> str:
    """Return the HTML.

    Args:
        title: What it is.
        folder_text: Folder of the object.
        note: Behind the title.
        rows: Name -> value; a value of None is left out.
        curves: Title -> name of a line -> its points; a line without two points is left out.
        pictures: (name, ``data:`` address) each.
        table: At the end.
        warnings: Lines at the end.
    """
    shown = [(name, value) for name, value in (rows or {}).items() if value is not None]
    drawn = [drawing for name, lines in (curves or {}).items() if (drawing := curve(name, lines)) is not None]
    return _template().render(
        title=title,
        note=note,
        folder=folder_text,
        rows=shown,
        curves=drawn,
        pictures=pictures,
        table=table,
        warnings=warnings,
    )


def curve(title: str, lines: Mapping[str, Points]) -> dict[str, Any] | None:
    """Return what the template draws of lines over the clock; None where no line has two points."""
    drawn = {name: points for name, points in lines.items() if len(points) > 1}
    if not drawn:
        return None
    x_low, x_high = _range([x for points in drawn.values() for x, _ in points])
    y_low, y_high = _range([y for points in drawn.values() for _, y in points])

    def at(x: float, y: float) -> str:
        across = _X_MIN + (x - x_low) / (x_high - x_low) * (_X_MAX - _X_MIN)
        return f"{across:.1f} {_BOTTOM - (y - y_low) / (y_high - y_low) * (_BOTTOM - 8):.1f}"

    return {
        "title": title,
        "width": _WIDTH,
        "height": _HEIGHT,
        "left": _X_MIN,
        "right": _X_MAX,
        "bottom": _BOTTOM,
        "highest": f"{y_high:.3g}",
        "lowest": f"{y_low:.3g}",
        "first": f"{x_low:,.0f}",
        "last": f"minibatch {x_high:,.0f}",
        "lines": [
            {
                "name": name,
                "colour": _COLOURS[position % len(_COLOURS)],
                "path": "M" + "L".join(at(x, y) for x, y in points),
            }
            for position, (name, points) in enumerate(drawn.items())
        ],
    }


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


@cache
def _template() -> Template:
    return template_environment("deepspark_ops.api.results", keeps_last_newline=False).get_template("card.html.jinja")
