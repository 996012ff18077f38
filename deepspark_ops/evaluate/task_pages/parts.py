"""Parts of every report, for any task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from deepspark_ops.evaluate.charts import Line
from deepspark_ops.evaluate.task_pages.examples import Example
from deepspark_ops.shards.thumbnail import Picture, small_picture

PICTURE_PIXELS = 160
"""Larger pictures are scaled down to this, so that a page with ImageNet's mistakes stays small."""


@dataclass(frozen=True)
class Tile:
    """A number at the top."""

    name: str
    value: str
    note: str


@dataclass(frozen=True)
class Card:
    """A chart with a title, and the chart's values as a table; a legend of a single line is not shown."""

    title: str
    chart: Markup
    legend: Sequence[Line] = ()
    table: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under a head; the first column is text, the others are numbers.

    Attributes:
        head: Names of the columns.
        rows: Values of each row.
        links: Position of a row -> address that the row's first value leads to.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    links: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Shown:
    """A sample with pictures side by side.

    Attributes:
        index: Position of the sample.
        pictures: What each shows, the picture's address (a data URI), and whether it has few pixels.
        lines: What is said below, the first line in bold.
    """

    index: int
    pictures: Sequence[Mapping[str, object]]
    lines: Sequence[str]


@dataclass(frozen=True)
class Section:
    """A part of the report under a heading.

    Attributes:
        title: The heading.
        lead: What is seen.
        cards: Charts.
        table: A table; None for none.
        shown: Samples as pictures.
    """

    title: str
    lead: str = ""
    cards: Sequence[Card] = ()
    table: Table | None = None
    shown: Sequence[Shown] = ()


@dataclass(frozen=True)
class TaskPage:
    """Report sections of a task.

    Attributes:
        tiles: At the top, the main figure first.
        figures: Before the training's charts.
        examples: Behind them.
    """

    tiles: Sequence[Tile]
    figures: Sequence[Section] = ()
    examples: Sequence[Section] = field(default=())


def shown(example: Example, lines: Sequence[str]) -> Shown:
    """Return an example for the page, with small pictures."""
    return Shown(
        example.index,
        [{"name": name, **picture_view(picture)} for name, picture in example.pictures],
        lines,
    )


def picture_view(picture: Picture) -> dict[str, object]:
    """Return a picture for a template: the address of the small picture, a data URI, and whether it has few pixels."""
    return {
        "source": small_picture(picture, PICTURE_PIXELS).data_uri(),
        "is_small": max(picture.shape[:2]) <= PICTURE_PIXELS // 2,
    }
