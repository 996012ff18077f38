"""The rows of a list of runs, and which of them a reader asked for. No framework, no files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from deepspark_ops.run_index.summary import RunSummary

_LATER: Final = {"queued": "waiting", "running": "running", "success": "finished", "failed": "failed"}
ASKS: Final = "waits for approval"
"""State of a run of which a task waits for a person's answer."""
SORTS: Final = (
    "dag", "run", "state", "solver", "net", "dataset", "strategy", "n_workers", "tau", "clock", "figure", "loss",
    "images_per_s", "seconds", "when", "who",
)  # fmt: skip
_ONCE_CALLED: Final = {"accuracy": "figure"}
"""Names of sorts in addresses that people have kept."""
FILTERS: Final = ("dag", "state", "dataset", "strategy")
_SEARCHED: Final = ("dag", "run", "state", "solver", "net", "dataset", "dataset_digest", "strategy", "who", "kind")


@dataclass(frozen=True)
class KnownRun:
    """A run as Airflow has it, or as its folder tells where Airflow has forgotten it.

    Attributes:
        dag: Id of the DAG.
        run: Id of the run; the folder's name where Airflow does not know it.
        state: Airflow's word; None where it does not know the run.
        when: When it was triggered, seconds since the epoch.
        began: When it began; None before.
        ended: When it ended; None before.
        kind: ``manual``, ``scheduled``, ``asset_triggered``, ``backfill``; empty if unknown.
        user: Who triggered it; None where nobody did.
        asks: Id of its task that waits for a person's answer; None where none does.
        waited_s: Seconds between its beginning and its end in which it waited for other runs: no part of its duration.
    """

    dag: str
    run: str
    state: str | None
    when: float | None = None
    began: float | None = None
    ended: float | None = None
    kind: str = ""
    user: str | None = None
    asks: str | None = None
    waited_s: float = 0.0


@dataclass(frozen=True)
class RunQuery:
    """What a reader asked for.

    Attributes:
        search: Words that all must be in a row's texts, in any case.
        filters: One of ``FILTERS`` -> the value that a row must have.
        sort: One of ``SORTS``; with a minus the greatest first, and of ``figure``, what runs are judged by, the best.
    """

    search: str = ""
    filters: tuple[tuple[str, str], ...] = ()
    sort: str = "-when"


def row_of(known: KnownRun, summary: RunSummary | None, *, now: float) -> dict[str, Any]:
    """Return a row as plain JSON values.

    Args:
        known: The run.
        summary: Of its folder; None if that was not read yet.
        now: Seconds since the epoch.
    """
    read = summary or RunSummary(made_of={})
    ended = known.ended if known.ended is not None else now
    fields = read.model_dump(exclude={"format_version", "made_of", "ending"})
    return {
        "dag": known.dag,
        "run": known.run,
        "state": _state(known, read),
        "asks": known.asks,
        "is_read": summary is not None,
        **fields,
        "curve": [list(point) for point in read.curve],
        "seconds": None if known.began is None else max(0.0, ended - known.began - known.waited_s),
        "when": known.when,
        "kind": known.kind,
        "who": known.user or known.kind or None,
    }


def _state(known: KnownRun, summary: RunSummary) -> str:
    if known.state is None:
        return summary.ending or "unknown"
    if known.asks is not None:
        return ASKS
    if known.state == "failed" and summary.ending == "stopped":
        return "stopped"
    return _LATER.get(known.state, known.state)


def chosen(rows: Iterable[dict[str, Any]], query: RunQuery) -> list[dict[str, Any]]:
    """Return the rows that a reader asked for, in the order asked for; rows without the value come last."""
    words = query.search.casefold().split()
    found = [row for row in rows if _fits(row, words, query.filters)]
    name = query.sort.removeprefix("-")
    name = _ONCE_CALLED.get(name, name)
    if name not in SORTS:
        return found
    found.sort(key=lambda row: row["run"])
    if name == "figure":
        return _by_figure(found, best_first=query.sort.startswith("-"))
    has_value = [row for row in found if row[name] is not None]
    has_value.sort(key=_order(name), reverse=query.sort.startswith("-"))
    return has_value + [row for row in found if row[name] is None]


def _by_figure(rows: Sequence[dict[str, Any]], *, best_first: bool) -> list[dict[str, Any]]:
    """Return rows by what they are judged by.

    Values of different figures say nothing about each other, so runs of one figure stand together: shares that are
    right first, then the others by name; rows without any come last. Which end of a figure is the better one, it says.
    """
    judged: dict[tuple[bool, str], list[tuple[float, dict[str, Any]]]] = {}
    without = []
    for row in rows:
        figure = row["figure"]
        if figure is not None:
            goodness = figure["value"] if figure["higher_is_better"] else -figure["value"]
            judged.setdefault((True, figure["label"]), []).append((goodness, row))
        elif row["accuracy"] is not None:
            judged.setdefault((False, ""), []).append((row["accuracy"], row))
        else:
            without.append(row)
    groups = [sorted(judged[key], key=lambda pair: pair[0], reverse=best_first) for key in sorted(judged)]
    return [row for group in groups for _, row in group] + without


def choices(rows: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the values that each filter can have."""
    return {name: sorted({str(row[name]) for row in rows if row[name] is not None}) for name in FILTERS}


def _order(name: str) -> Callable[[dict[str, Any]], Any]:
    if name == "tau":  # a number, "auto" or a schedule
        return lambda row: (not row[name].isdecimal(), int(row[name]) if row[name].isdecimal() else 0, row[name])
    return lambda row: row[name].casefold() if isinstance(row[name], str) else row[name]


def _fits(row: dict[str, Any], words: Sequence[str], filters: Iterable[tuple[str, str]]) -> bool:
    if any(row[name] is None or str(row[name]) != value for name, value in filters):
        return False
    text = " ".join(str(row[name]) for name in _SEARCHED if row[name] is not None).casefold()
    return all(word in text for word in words)
