"""Rows of a list of runs, and their selection by a reader. No framework, no files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from deepspark_ops.run_index.filter_language import Check, Condition
from deepspark_ops.run_index.outcome import BY_HAND, PROMOTED
from deepspark_ops.run_index.summary import RunSummary
from deepspark_ops.run_label.names import TRAINING, default_name, work_of_dag
from deepspark_ops.run_view.state import NO_TASK_FAILED

_LATER: Final = {"queued": "waiting", "running": "running", "success": "finished", "failed": "failed"}
ASKS: Final = "waits for approval"
"""State of a run with a task that waits for a person's answer."""
SORTS: Final = (
    "name", "dag", "run", "state", "solver", "net", "dataset", "strategy", "n_workers", "tau", "clock", "figure",
    "loss", "images_per_s", "seconds", "when", "who",
)  # fmt: skip
_ONCE_CALLED: Final = {"accuracy": "figure"}
"""Old names of sorts in bookmarked addresses."""
ALL: Final = "all"
WORKS: Final = (TRAINING, "other", ALL)
ARCHIVES: Final = ("hide", ALL, "only")
FILTERS: Final = ("dag", "state", "dataset", "strategy")
_SEARCHED: Final = (
    "name", "dag", "run", "state", "solver", "net", "dataset", "dataset_digest", "strategy", "who", "kind", "error",
    "outcome", "note",
)  # fmt: skip


@dataclass(frozen=True)
class KnownRun:
    """A run from Airflow, or from its folder if Airflow has forgotten the run.

    Attributes:
        dag: Id of the DAG.
        run: Id of the run; the folder's name if Airflow does not know the run.
        state: Airflow's state; None if Airflow does not know the run.
        when: Time of the trigger, seconds since the epoch.
        began: Time of the start; None before the start.
        ended: Time of the end; None before the end.
        is_trial: Whether the run is a trial of a comparison.
        kind: ``manual``, ``scheduled``, ``asset_triggered``, ``backfill``; empty if unknown.
        user: User who triggered the run; None for other triggers.
        asks: Id of the task that waits for a person's answer; None without such a task.
        name: Name of the run in the form; empty without a name.
        solver: File name of the solver in the form; None if unknown.
        strategy: Strategy in the form; None if unknown.
        note: Note of the run in Airflow; empty without a note.
        work: Work of the DAG's tasks; None if they do not tell.
        dag_run: Id of the DAG run, for a run of a DAG run with several runs; else empty.
        failed_task: Id of a task that failed in a failed run; None without such a task.
        waited_s: Seconds between start and end in which the run waited for other runs: not part of the duration.
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
    name: str = ""
    solver: str | None = None
    strategy: str | None = None
    failed_task: str | None = None
    waited_s: float = 0.0
    is_trial: bool = False
    note: str = ""
    work: str | None = None
    dag_run: str = ""


@dataclass(frozen=True)
class RunQuery:
    """Search, filters and order of a list.

    Attributes:
        search: Words that must all occur in a row's texts; case is ignored.
        filters: Name in ``FILTERS`` -> required value.
        conditions: Conditions that a row must all fit.
        work: ``training``, ``other`` for every other work, or ``all``.
        archived: ``hide``, ``only`` or ``all``.
        sort: Name in ``SORTS``; a minus sorts descending, and for ``figure`` (main figure) the best first.
    """

    search: str = ""
    filters: tuple[tuple[str, str], ...] = ()
    conditions: tuple[Condition, ...] = ()
    work: str = ALL
    archived: str = ALL
    sort: str = "-when"

    def asks_for(self, field: str) -> bool:
        """Return whether a condition is about a field; the field then has no default."""
        return any(condition.field == field for condition in self.conditions)


_UNREAD: Final = RunSummary()


def row_of(run: KnownRun, summary: RunSummary | None, *, now: float, is_promoted: bool = False) -> dict[str, Any]:
    """Return a row as plain JSON values; ``with_curve`` parses the curve.

    Args:
        run: The run.
        summary: Summary of the run's folder; None if the folder was not read yet.
        now: Seconds since the epoch.
        is_promoted: Whether the run's model is a version of a model, by its DAG run or by hand.
    """
    read = summary or _UNREAD
    ended = run.ended if run.ended is not None else now
    state = _state(run, read)
    work = read.work or run.work or work_of_dag(run.dag, is_trial=run.is_trial)
    solver, strategy = read.solver or run.solver, read.strategy or run.strategy
    own_name = read.name or (run.name if read.work is None else "")  # the first task moves the form's name to the run
    name = own_name or default_name(
        work=work, net=read.net, solver=solver, strategy=strategy, n_workers=read.n_workers, max_iter=read.max_iter
    )
    return {
        **read.model_dump(mode="json", exclude={"format_version", "made_of", "ending"}),
        "dag": run.dag,
        "run": run.run,
        "dag_run": run.dag_run or None,
        "state": state,
        "asks": run.asks,
        "is_read": summary is not None,
        "name": name,
        "is_named": bool(own_name),
        "work": work,
        "solver": solver,
        "strategy": strategy,
        "outcome": BY_HAND if is_promoted and read.outcome != PROMOTED else read.outcome,
        "error": (read.error or _reason(run)) if state == "failed" else None,
        "note": run.note or None,
        "seconds": None if run.began is None else max(0.0, ended - run.began - run.waited_s),
        "when": run.when,
        "kind": run.kind,
        "who": run.user or run.kind or None,
    }


def with_curve(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with the points of the curve, [clock, loss], in place of their text."""
    return {**row, "curve": json.loads(row["curve"])}


def _reason(run: KnownRun) -> str:
    """Return the reason of a failed run whose tasks noted no message."""
    if run.failed_task is None:
        return NO_TASK_FAILED
    return f"task {run.failed_task} failed; the log of the task has the reason"


def _state(run: KnownRun, summary: RunSummary) -> str:
    if run.asks is not None:
        return ASKS
    if run.state is None:
        return summary.state or "unknown"
    if run.state == "failed" and summary.is_stopped:
        return "stopped"
    return _LATER.get(run.state, run.state)


def chosen(rows: Iterable[dict[str, Any]], query: RunQuery) -> list[dict[str, Any]]:
    """Return the selected rows in the selected order; rows without the sorted value come last."""
    words = query.search.casefold().split()
    checks = [condition.check() for condition in query.conditions]
    matching = [row for row in rows if _fits(row, words, query, checks)]
    name = query.sort.removeprefix("-")
    name = _ONCE_CALLED.get(name, name)
    if name not in SORTS:
        return matching
    matching.sort(key=lambda row: row["run"])
    if name == "figure":
        return _by_figure(matching, best_first=query.sort.startswith("-"))
    has_value = [row for row in matching if row[name] is not None]
    has_value.sort(key=_order(name), reverse=query.sort.startswith("-"))
    return has_value + [row for row in matching if row[name] is None]


def _by_figure(rows: Sequence[dict[str, Any]], *, best_first: bool) -> list[dict[str, Any]]:
    """Return rows sorted by the main figure.

    Values of different figures are not comparable. So runs with the same figure are adjacent: shares of correct answers
    first, then other figures by name; rows without a figure come last. Each figure defines the better direction.
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
    """Return the possible values of each filter."""
    values = {name: set(map(itemgetter(name), rows)) - {None} for name in FILTERS}
    return {name: sorted(map(str, present)) for name, present in values.items()}


def _order(name: str) -> Callable[[dict[str, Any]], Any]:
    if name == "tau":  # a number, "auto" or a schedule
        return lambda row: (not row[name].isdecimal(), int(row[name]) if row[name].isdecimal() else 0, row[name])
    return lambda row: row[name].casefold() if isinstance(row[name], str) else row[name]


def _fits(row: dict[str, Any], words: Sequence[str], query: RunQuery, checks: Sequence[Check]) -> bool:
    if not _is_shown(row, query):
        return False
    if any(row[name] is None or str(row[name]) != value for name, value in query.filters):
        return False
    for check in checks:
        if not check(row):
            return False
    if not words:
        return True
    text = " ".join([*(str(row[name]) for name in _SEARCHED if row[name] is not None), *row["tags"]]).casefold()
    return all(word in text for word in words)


def _is_shown(row: Mapping[str, Any], query: RunQuery) -> bool:
    """Return whether work and archive mark of a row are wanted; a condition about either replaces the choice."""
    if query.archived != ALL and row["archived"] != (query.archived == "only") and not query.asks_for("archived"):
        return False
    return query.work == ALL or (row["work"] == TRAINING) == (query.work == TRAINING) or query.asks_for("work")
