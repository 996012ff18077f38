"""Columns of the list of runs: words, sorting, and the order of the first visit."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from typing import Any, Final

from deepspark_ops.operators.pages.addresses import RUNS_URL

COLUMNS: Final = {
    "name": (("name", "name"), ("run", "run")),
    "state": (("state", "state"),),
    "net": (("net", "net"), ("solver", "solver")),
    "dataset": (("dataset", "dataset"),),
    "strategy": (("strategy", "strategy"), ("n_workers", "workers"), ("tau", "tau")),
    "clock": (("clock", "clock"),),
    "figure": (("figure", "main figure"),),
    "loss": (("loss", "loss"),),
    "curve": ((None, "curve"),),
    "images_per_s": (("images_per_s", "images/s"),),
    "duration": (("seconds", "duration"),),
    "when": (("when", "when"), ("who", "who")),
    "note": ((None, "note"),),
}
"""Column -> the values that the column shows and can be sorted by."""
NUMBERS: Final = ("clock", "figure", "loss", "images_per_s", "duration")
HIDDEN: Final = ("note",)
"""Columns that a reader has to choose."""
_FIRST_CHOICES: Final = {"work": "training", "archived": "hide"}
_GREATEST_FIRST: Final = ("n_workers", "clock", "figure", "images_per_s", "seconds", "when")


def list_address(site: str, query: Mapping[str, Any]) -> str:
    """Return the address of the list for a query; empty values and the list's first choices are left out."""
    chosen = {name: value for name, value in query.items() if value and _FIRST_CHOICES.get(name) != value}
    return f"{site}{RUNS_URL}?{urllib.parse.urlencode(chosen)}"


def column_heads(query: Mapping[str, Any], site: str) -> list[dict[str, Any]]:
    """Return the head of each column: the links for sorting, and the present direction."""
    return [_head(name, query, site) for name in COLUMNS]


def sort_choices(sort: str) -> list[tuple[str, str]]:
    """Return the sort choices as (value, word): each column's first direction, and the present sort."""
    words = {_first_direction(name): word for group in COLUMNS.values() for name, word in group if name is not None}
    if sort not in words and (other := words.get(_reverse(sort))):
        words[sort] = f"{other}, the other way round"
    return list(words.items())


def _head(column: str, query: Mapping[str, Any], site: str) -> dict[str, Any]:
    links = [
        {"word": word, "url": _sorted_url(query, name, site), "direction": _direction(query, name)}
        for name, word in COLUMNS[column]
    ]
    direction = next((link["direction"] for link in links if link["direction"]), "")
    return {
        "name": column,
        "word": COLUMNS[column][0][1],
        "links": links,
        "direction": direction,
        "is_number": column in NUMBERS,
        "is_hidden": column in HIDDEN,
    }


def _first_direction(name: str) -> str:
    return f"-{name}" if name in _GREATEST_FIRST else name


def _sorted_url(query: Mapping[str, Any], name: str | None, site: str) -> str:
    """Return the address of the list sorted by a column; for the present sort column, in reverse."""
    if name is None:
        return ""
    first = _first_direction(name)
    sort = _reverse(first) if query["sort"] == first else first
    return list_address(site, {**query, "sort": sort, "page": ""})


def _reverse(sort: str) -> str:
    return sort.removeprefix("-") if sort.startswith("-") else f"-{sort}"


def _direction(query: Mapping[str, Any], name: str | None) -> str:
    if name is None or query["sort"].removeprefix("-") != name:
        return ""
    return "descending" if query["sort"].startswith("-") else "ascending"
