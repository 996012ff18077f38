"""A result as HTML for a notebook and as plain text. HTML escapes every value and has no script."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class Card:
    """The facts of a result.

    Attributes:
        title: Kind and name of the result.
        folder: Folder of the result.
        note: Text behind the title.
        rows: Name -> value; a value of None is left out.
        curves: Title -> name of a line -> its points; a line without two points is left out. HTML alone shows curves.
        pictures: (name, ``data:`` address) each. HTML alone shows pictures.
        table: Table below the rows.
        warnings: Lines at the end.
    """

    title: str
    folder: str
    note: str = ""
    rows: Mapping[str, object] = field(default_factory=dict)
    curves: Mapping[str, Mapping[str, Points]] = field(default_factory=dict)
    pictures: Sequence[tuple[str, str]] = ()
    table: CardTable | None = None
    warnings: Sequence[str] = ()

    def html(self) -> str:
        """Return the card for a notebook."""
        drawings = [drawing for name, lines in self.curves.items() if (drawing := curve(name, lines)) is not None]
        return _template().render(
            title=self.title,
            note=self.note,
            folder=self.folder,
            rows=self._shown_rows(),
            curves=drawings,
            pictures=self.pictures,
            table=self.table,
            warnings=self.warnings,
        )

    def text(self) -> str:
        """Return the card for a terminal, without control characters of the values."""
        title = f"{self.title} ({self.note})" if self.note else self.title
        table = [] if self.table is None else [self.table.columns, *self.table.rows]
        lines = [title, self.folder, *_aligned(self._shown_rows()), *_aligned(table), *self.warnings]
        return "\n".join("".join(letter for letter in line if letter.isprintable()) for line in lines)

    def _shown_rows(self) -> list[tuple[str, object]]:
        return [(name, value) for name, value in self.rows.items() if value is not None]


class HasCard(ABC):
    """A result that notebooks show as a card, and ``print`` as the card's text."""

    @abstractmethod
    def _card(self) -> Card:
        """Return the facts."""

    def _repr_html_(self) -> str:
        return self._card().html()

    def __str__(self) -> str:
        """Return the facts as text."""
        return self._card().text()


def _aligned(rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return a line per row, with aligned columns."""
    texts = [["" if value is None else str(value) for value in row] for row in rows]
    widths = [max(len(row[at]) for row in texts if at < len(row)) for at in range(max(map(len, texts), default=0))]
    return ["  ".join(value.ljust(widths[at]) for at, value in enumerate(row)).rstrip() for row in texts]


def number_text(value: float | None) -> str:
    """Return a number with four digits; nothing for None."""
    return "" if value is None else f"{value:.4g}"


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
