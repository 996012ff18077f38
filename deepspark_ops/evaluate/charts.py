"""Static charts as inline SVG text: lines over the clock, and confusion matrices. Colours come from the page's CSS.

No scripts: browsers show the ``<title>`` of a point or cell under the pointer.

Why not matplotlib? Version 3.11 was tried on the chart of two losses. Matplotlib's SVG has fixed colours, so a page
cannot restyle the chart for light, dark and print. Letters are outlines without text search, and there are no titles.
The SVG takes 18 KB instead of 7, and matplotlib adds 80 MB of packages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from deepspark_ops.shards.thumbnail import encoded

Point = tuple[float, float]

MAX_POINTS = 240
"""More points than this on one line are averaged in bins; the page stays small and the line readable."""
MAX_TITLED_POINTS = 120
MAX_TABLE_ROWS = 12
MAX_NUMBERED_CLASSES = 30
MAX_VECTOR_CLASSES = 60

_DIGIT_WIDTH, _WIDE = 0.7, 1.0
"""Widths of a bold digit, and of a bold M, G or sign, in font sizes: DejaVu Sans, the widest font, has 0.696, 0.995."""
_LARGEST_FONT = 13.0
_MINUS = "\u2212"
_NONE = "\u2013"
_LEGIBLE_FONT = 8.0
_SMALLEST_FONT = 5.0
"""A number that would be smaller than this is left to the cell's title."""


@dataclass(frozen=True)
class Line:
    """A line of a chart.

    Attributes:
        name: Shown in the legend; empty for none.
        points: (x, y), ascending in x, finite.
        style: CSS class of the line, e.g. ``line-0``; further classes may follow after a blank.
        has_marks: Draw a dot, with its values as title, at every point.
    """

    name: str
    points: Sequence[Point]
    style: str
    has_marks: bool = False


@dataclass(frozen=True)
class Band:
    """The range around a line, drawn behind all lines.

    Attributes:
        points: (x, lowest y, highest y), ascending in x, finite.
        style: CSS class, e.g. ``line-0``.
    """

    points: Sequence[tuple[float, float, float]]
    style: str


@dataclass(frozen=True)
class Scale:
    """Pixel of a value between ``low`` and ``high`` of an axis."""

    low: float
    high: float
    pixels_low: float
    pixels_high: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        low, high = (math.log10(self.low), math.log10(self.high)) if self.is_log else (self.low, self.high)
        value = math.log10(value) if self.is_log else value
        return self.pixels_low + (value - low) / (high - low) * (self.pixels_high - self.pixels_low)


def line_chart(
    lines: Sequence[Line],
    *,
    label: str,
    x_label: str,
    y_format: Callable[[float], str],
    width: int = 520,
    height: int = 250,
    wants_log: bool = False,
    has_log_x: bool = False,
    x_ticks: Sequence[float] = (),
    bands: Sequence[Band] = (),
) -> str:
    """Return an ``<svg>`` of the lines.

    Args:
        lines: At least one line with at least one point.
        label: What the chart shows, for screen readers.
        x_label: Name of the x axis, with unit.
        y_format: Text of a y value, on the axis and in titles.
        width: In CSS pixels of the view box; the page scales it.
        height: Likewise.
        wants_log: Use a logarithmic y axis if all values are positive and span more than a factor of 20.
        has_log_x: Use a logarithmic x axis; every x is positive.
        x_ticks: Values that the x axis names where the lines reach them; empty: round ones.
        bands: Ranges around some of the lines.
    """
    lines = [Line(line.name, thin_out(line.points), line.style, line.has_marks) for line in lines]
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    ys += [y for band in bands for _, low, high in band.points for y in (low, high)]
    is_log = wants_log and min(ys) > 0 and max(ys) > 20 * min(ys)
    y_ticks = log_ticks(min(ys), max(ys)) if is_log else nice_ticks(min(ys), max(ys), 5)
    x_round = x_ticks or (log_ticks(min(xs), max(xs)) if has_log_x else nice_ticks(min(xs), max(xs), 6))
    x_told = [tick for tick in x_round if min(xs) <= tick <= max(xs)]
    right = width - 20.0
    margin_left = 14 + 6.6 * max(len(y_format(tick)) for tick in y_ticks)
    bottom = height - 40.0
    x_scale = Scale(min(xs), max(max(xs), min(xs) + 1e-9), margin_left, right, has_log_x)
    y_scale = Scale(min(*ys, *y_ticks), max(*ys, *y_ticks), bottom, 12.0, is_log)
    parts = [f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">']
    parts += [y_tick(y_scale(tick), y_format(tick), margin_left, right) for tick in y_ticks]
    parts += [
        f'<text class="tick" x="{x_scale(tick):.1f}" y="{bottom + 16:.1f}" text-anchor="middle">{grouped(tick)}</text>'
        for tick in x_told
    ]
    middle = (margin_left + right) / 2
    parts.append(f'<text class="axis" x="{middle:.1f}" y="{height - 6}" text-anchor="middle">{escape(x_label)}</text>')
    parts += [_drawn_band(band, x_scale, y_scale) for band in bands]
    for line in lines:
        parts += _draw(line, x_scale, y_scale, y_format)
    parts.append("</svg>")
    return "".join(parts)


def y_tick(y: float, text: str, start_x: float, end_x: float) -> str:
    """Return a line of the grid, with the value's text before the line."""
    return (
        f'<line class="grid" x1="{start_x:.1f}" x2="{end_x:.0f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="tick" x="{start_x - 7:.1f}" y="{y + 3.5:.1f}" text-anchor="end">{text}</text>'
    )


def _drawn_band(band: Band, x_scale: Scale, y_scale: Scale) -> str:
    upper = [(x, high) for x, _, high in band.points]
    lower = [(x, low) for x, low, _ in reversed(band.points)]
    corners = " ".join(f"{x_scale(x):.1f},{y_scale(y):.1f}" for x, y in [*upper, *lower])
    return f'<polygon class="band {band.style}" points="{corners}"/>'


def _draw(line: Line, x_scale: Scale, y_scale: Scale, y_format: Callable[[float], str]) -> list[str]:
    pixels = [(x_scale(x), y_scale(y)) for x, y in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in pixels)
    title = f"<title>{escape(line.name)}</title>" if line.name else ""
    drawn = [f'<polyline class="line {line.style}" points="{path}">{title}</polyline>']
    if line.has_marks:
        step = max(1, len(pixels) // MAX_TITLED_POINTS)
        for (x, y), (clock, value) in list(zip(pixels, line.points, strict=True))[::step]:
            text = escape(f"{line.name} at {grouped(clock)}: {y_format(value)}")
            circle_at = f'cx="{x:.1f}" cy="{y:.1f}"'
            drawn.append(f'<circle class="mark {line.style}" {circle_at} r="2.6"><title>{text}</title></circle>')
    return drawn


def confusion_chart(
    confusion: npt.NDArray[np.int64], names: Sequence[str], links: Mapping[tuple[int, int], str] | None = None
) -> str:
    """Return the confusion matrix as a picture: right predictions in blue, wrong predictions in red.

    A cell's strength is the square root of the cell's share of the row: a few mistakes among a thousand samples stay
    visible. Up to ``MAX_VECTOR_CLASSES`` classes give an SVG with a title per cell, more classes give an image.

    Args:
        confusion: Counts, shape (n, n), true class by row, predicted class by column.
        names: One per class.
        links: Row and column of a cell -> address that the cell leads to; without effect on an image.
    """
    linked = links or {}
    support = np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    strength = np.sqrt(confusion / support)
    if len(confusion) > MAX_VECTOR_CLASSES:
        return _confusion_image(strength)
    shows_numbers = len(confusion) <= MAX_NUMBERED_CLASSES

    def cell(row: int, column: int, square: _Square) -> str:
        count = int(confusion[row, column])
        return _cell(
            str(count) if count and shows_numbers else "",
            _short_count(count),
            float(strength[row, column]),
            square,
            kind=("right" if row == column else "wrong") if count else "",
            title=f"true {names[row]}, predicted {names[column]}: {count} of {support[row, 0]}",
            link=linked.get((row, column)),
        )

    label = "Confusion matrix, true class by row, predicted class by column"
    return _matrix(names, label, cell, has_links=bool(linked))


def difference_chart(
    first: npt.NDArray[np.int64],
    second: npt.NDArray[np.int64],
    names: Sequence[str],
    links: Mapping[tuple[int, int], str] | None = None,
) -> str:
    """Return the second confusion matrix minus the first as an SVG; more and fewer have different colours.

    A cell's strength is the square root of the cell's share of the greatest difference.

    Args:
        first: Counts, shape (n, n) with n up to ``MAX_VECTOR_CLASSES``, true class by row, predicted class by column.
        second: Likewise, of the same samples.
        names: One per class.
        links: As for ``confusion_chart``.
    """
    linked = links or {}
    change = second - first
    strength = np.sqrt(np.abs(change) / max(1, int(np.abs(change).max())))
    shows_numbers = len(change) <= MAX_NUMBERED_CLASSES

    def cell(row: int, column: int, square: _Square) -> str:
        more = int(change[row, column])
        counts = f"{first[row, column]} in the first, {second[row, column]} in the second"
        return _cell(
            f"{more:+d}" if more and shows_numbers else "",
            f"{'-' if more < 0 else '+'}{_short_count(abs(more))}",
            float(strength[row, column]),
            square,
            kind="" if not more else "more" if more > 0 else "fewer",
            title=f"true {names[row]}, predicted {names[column]}: {counts}",
            link=linked.get((row, column)),
        )

    label = "Difference of two confusion matrices, true class by row, predicted class by column"
    return _matrix(names, label, cell, has_links=bool(linked))


_Square = tuple[float, float, float]
"""Left, top and side of a cell."""


def _matrix(
    names: Sequence[str], label: str, cell_of: Callable[[int, int, _Square], str], *, has_links: bool = False
) -> str:
    """Return an SVG of a square of cells, with the classes beside and above the square.

    With ``has_links`` the chart is a group: a screen reader reads nothing inside of an ``img``.
    """
    n = len(names)
    cell = max(13.0, min(46.0, 620.0 / n))
    shown = [name if len(name) <= 16 else name[:15] + "…" for name in names]
    margin_left = 40 + 6.8 * max(len(name) for name in shown)
    turned = max(len(name) for name in shown) * 6.8 > cell
    margin_top = 30 + (6.8 * max(len(name) for name in shown) * 0.72 if turned else 14)
    right = 24 + (6.8 * len(shown[-1]) * 0.72 if turned else 0)
    width, height = margin_left + n * cell + right, margin_top + n * cell + 10
    parts = [
        f'<svg class="confusion" viewBox="0 0 {width:.0f} {height:.0f}" style="max-width:{width:.0f}px" '
        f'role="{"group" if has_links else "img"}" aria-label="{escape(label)}">',
        f'<text class="axis" x="{margin_left + n * cell / 2:.1f}" y="12" text-anchor="middle">predicted</text>',
        f'<text class="axis" transform="translate(11 {margin_top + n * cell / 2:.1f}) rotate(-90)" '
        'text-anchor="middle">true</text>',
    ]
    for at, name in enumerate(shown):
        middle = (at + 0.5) * cell
        parts.append(
            f'<text class="tick" x="{margin_left - 8:.1f}" y="{margin_top + middle + 3.5:.1f}" '
            f'text-anchor="end">{escape(name)}</text>'
        )
        label_at = f"translate({margin_left + middle:.1f} {margin_top - 7:.1f})"
        turn, anchor = (" rotate(-45)", "start") if turned else ("", "middle")
        parts.append(f'<text class="tick" transform="{label_at}{turn}" text-anchor="{anchor}">{escape(name)}</text>')
    for row, column in np.ndindex(n, n):
        parts.append(cell_of(row, column, (margin_left + column * cell, margin_top + row * cell, cell)))
    parts.append("</svg>")
    return "".join(parts)


def _cell(
    text: str, short: str, strength: float, square: _Square, *, kind: str, title: str, link: str | None = None
) -> str:
    """Return a cell with the number ``text``, or with ``short`` where ``text`` would be illegibly small.

    ``strength`` is from 0 to 1. ``kind`` is the CSS class with the colour, empty for none.
    """
    x, y, size = square
    side = size - 2
    box = f'x="{x + 1:.1f}" y="{y + 1:.1f}" width="{side:.1f}" height="{side:.1f}" rx="2.5"'
    drawn = f'<rect class="cell" {box}/>'
    if kind:
        opacity = f"{0.12 + 0.88 * strength:.2f}"
        drawn += f'<rect class="{kind}" {box} fill-opacity="{opacity}"/>'
    if text and _fitting_font(text, side) < _LEGIBLE_FONT:
        text = min(text, short, key=len)
    if text and (font := _fitting_font(text, side)) >= _SMALLEST_FONT:
        over = " over" if strength > 0.6 else ""
        drawn += (
            f'<text class="count{over}" x="{x + size / 2:.1f}" y="{y + size / 2 + font * 0.36:.1f}" '
            f'font-size="{font:.1f}" text-anchor="middle">'
            f"{text.replace('-', _MINUS)}</text>"
        )
    return linked(f"<g>{drawn}<title>{escape(title)}</title></g>", title, link)


def linked(drawn: str, title: str, link: str | None) -> str:
    """Return a part of a chart that leads to the address ``link``, if there is one."""
    return drawn if link is None else f'<a href="{escape(link)}" aria-label="{escape(title)}">{drawn}</a>'


def _fitting_font(text: str, side: float) -> float:
    """Return the largest font size for a text inside of a cell."""
    width = sum(_WIDE if letter in "MG+-" else _DIGIT_WIDTH for letter in text)
    return min(_LARGEST_FONT, (side - 2) / width)


def _short_count(count: int) -> str:
    """Return a count as at most four letters.

    Example:
        >>> [_short_count(count) for count in (0, 9999, 12345, 999_499, 999_500, 1_950_000, 99_999_999, 2_147_483_647)]
        ['0', '9999', '12k', '999k', '1.0M', '1.9M', '100M', '2.1G']
    """
    if count < 10_000:
        return str(count)
    scale, letter = next(pair for pair in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if count >= 0.9995 * pair[0])
    return f"{count / scale:.{int(count / scale < 9.95)}f}{letter}"


def _confusion_image(strength: npt.NDArray[np.float64]) -> str:
    """Return a PNG with an alpha channel, for light and dark pages."""
    n = len(strength)
    pixels = np.zeros((n, n, 4), np.uint8)  # BGRA, as OpenCV writes it
    pixels[..., :3] = (60, 90, 214)
    pixels[np.arange(n), np.arange(n), :3] = (190, 120, 40)
    pixels[..., 3] = np.rint(255 * strength).astype(np.uint8)
    factor = max(1, 720 // n)
    pixels = np.repeat(np.repeat(pixels, factor, axis=0), factor, axis=1)
    return (
        f'<img class="confusion" alt="Confusion matrix of {n} classes, true class by row, predicted class by column" '
        f'src="{encoded(pixels).data_uri()}">'
    )


def thin_out(points: Sequence[Point], most: int = MAX_POINTS) -> list[Point]:
    """Return at most ``most`` points, each the mean of a bin of neighbours.

    Example:
        >>> thin_out([(0, 1.0), (1, 3.0), (2, 5.0), (3, 7.0)], most=2)
        [(0.5, 2.0), (2.5, 6.0)]
    """
    if len(points) <= most:
        return list(points)
    edges = np.linspace(0, len(points), most + 1).astype(int)
    table = np.asarray(points, np.float64)
    means = [table[low:high].mean(axis=0) for low, high in pairwise(edges)]
    return [(float(x), float(y)) for x, y in means]


def nice_ticks(low: float, high: float, about: int) -> list[float]:
    """Return about ``about`` round values that cover [low, high], in steps of 1, 2 or 5 times a power of ten.

    Example:
        >>> nice_ticks(0.0, 1000.0, 5)
        [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0]
        >>> nice_ticks(0.93, 0.986, 4)
        [0.92, 0.94, 0.96, 0.98, 1.0]
        >>> nice_ticks(0.01, 0.01, 3), nice_ticks(0.0, 0.0, 3)
        ([0.005, 0.01, 0.015], [0.0, 0.5, 1.0])
    """
    if low == high == 0.0:  # most often a count or a share, of which there is none
        return [0.0, 0.5, 1.0]
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        span = abs(low) / 2
        return [_round(low - span), _round(low), _round(low + span)]
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [_round(step * k) for k in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return round values inside [low, high], low > 0: powers of ten, for a short range also 2 and 5 times a power.

    Example:
        >>> log_ticks(0.02, 3.0)
        [0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0]
        >>> log_ticks(0.0004, 3.0)
        [0.001, 0.01, 0.1, 1.0]
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1, 2, 5) if last - first <= 3 else (1,)
    every = 1 + (last - first) // 7
    ticks = [_round(factor * 10.0**exponent) for exponent in range(first, last + 1, every) for factor in factors]
    return [tick for tick in ticks if low <= tick <= high]


def _round(value: float) -> float:
    return float(f"{value:.10g}")


def grouped(value: float) -> str:
    """Return a count with commas at thousands, as the pages write numbers.

    Example:
        >>> grouped(12000.0)
        '12,000'
    """
    return f"{value:,.0f}" if abs(value) >= 1 or value == 0 else f"{value:g}"


def line_table(lines: Sequence[Line], *, x_label: str, y_format: Callable[[float], str]) -> str:
    """Return the values of a chart's lines as a folded table with at most ``MAX_TABLE_ROWS`` evenly spread rows.

    A row has the value of each line's last point up to the row.
    """
    xs = sorted({x for line in lines for x, _ in line.points})
    row_indices = np.linspace(0, len(xs) - 1, min(len(xs), MAX_TABLE_ROWS)).round().astype(int)
    rows = []
    for x in (xs[index] for index in row_indices):
        reached = [[y for at, y in line.points if at <= x] for line in lines]
        rows.append([grouped(x), *(y_format(ys[-1]) if ys else _NONE for ys in reached)])
    return value_table([x_label, *(line.name for line in lines)], rows)


def value_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return the values of a chart as a folded table; the first value of a row names the row."""
    heads = "".join(f'<th scope="col" class="number">{escape(name)}</th>' for name in head[1:])
    parts = [
        '<details class="values"><summary>as a table</summary><div class="wide" tabindex="0"><table>'
        f'<thead><tr><th scope="col">{escape(head[0])}</th>{heads}</tr></thead><tbody>'
    ]
    for name, *values in rows:
        cells = "".join(f'<td class="number">{escape(value)}</td>' for value in values)
        parts.append(f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>')
    return "".join([*parts, "</tbody></table></div></details>"])


def share_tick(value: float) -> str:
    """Return a share of an axis in percent.

    Example:
        >>> share_tick(0.5), share_tick(0.9625)
        ('50 %', '96.25 %')
    """
    return f"{100 * value:.4g} %"
