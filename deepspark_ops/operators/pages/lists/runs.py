"""The page "Runs": all runs of readable DAGs, filtered by the page's address."""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from deepspark_ops.operators.pages.addresses import RUNS_URL, URL_PREFIX, answer_url, dataset_url, find_run, run_url
from deepspark_ops.operators.pages.run.trials import known_trial
from deepspark_ops.operators.pages.templates import template
from deepspark_ops.operators.tasks.run_plan import Places, is_folder_name, safe_run_id
from deepspark_ops.run_index.index_file import SummaryReader
from deepspark_ops.run_index.listing import FILTERS, KnownRun, RunQuery, choices, chosen, row_of
from deepspark_ops.run_index.schedule import BY_HAND, Schedule
from deepspark_ops.run_index.summary import RunSummary
from deepspark_ops.trials.plan import comparison_of

ANSWER_VERSION: Final = 1
ROWS_SHOWN: Final = 500
REFRESH_MS: Final = 30_000
"""Between two requests of a page with a live run: twenty open pages ask less than once a second."""
_LIVE: Final = ("waiting", "running")
_OVER: Final = ("success", "failed", None)
COLUMNS: Final = (
    (("name", "name"), ("run", "run")),
    (("state", "state"),),
    (("net", "net"), ("solver", "solver")),
    (("dataset", "dataset"),),
    (("strategy", "strategy"), ("n_workers", "workers"), ("tau", "tau")),
    (("clock", "clock"),),
    (("figure", "main figure"),),
    (("loss", "loss"),),
    ((None, "curve"),),
    (("images_per_s", "images/s"),),
    (("seconds", "duration"),),
    (("when", "when"), ("who", "who")),
)
"""What each column of the table shows, and can be sorted by."""
_GREATEST_FIRST: Final = ("n_workers", "clock", "figure", "images_per_s", "seconds", "when")
NUMBERS: Final = ("clock", "figure", "loss", "images_per_s", "seconds")


class RunsPage:
    """The list. Thread-safe."""

    def __init__(
        self,
        installation: Places,
        airflow_runs: Callable[[Collection[str]], list[KnownRun]],
        tagged_dags: Callable[[], set[str]],
        *,
        schedules: Callable[[Collection[str]], list[Schedule]] = lambda dags: [],
        reader: SummaryReader | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """List the runs of ``installation``.

        Args:
            installation: Where runs are.
            airflow_runs: Returns the runs of some DAGs, newest first.
            tagged_dags: Returns the DAGs that are ours, whether they have run or not.
            schedules: Returns when some DAGs run by themselves.
            reader: Reads the runs' folders.
            clock: Seconds since the epoch.
        """
        self._installation = installation
        self._airflow_runs = airflow_runs
        self._tagged_dags = tagged_dags
        self._schedules = schedules
        self._reader = reader or SummaryReader()
        self._clock = clock

    def our_dags(self) -> set[str]:
        """Return our DAGs: DAGs with our tag, and DAGs with a folder of runs."""
        runs = self._installation.home / "runs"
        folders = {path.name for path in runs.iterdir() if path.is_dir()} if runs.is_dir() else set()
        return folders | self._tagged_dags()

    def answer(self, readable: Collection[str], query: RunQuery) -> dict[str, Any]:
        """Return the list for a query.

        Args:
            readable: The DAGs that the person may read; nothing of others is in the answer.
            query: What is asked for.
        """
        dags = self.our_dags() & set(readable)
        rows = self._rows(dags)
        rows_found = chosen(rows, query)
        return {
            "format_version": ANSWER_VERSION,
            "query": {"search": query.search, **dict(query.filters), "sort": query.sort},
            "choices": choices(rows),
            "schedules": [asdict(schedule) for schedule in self._schedules(dags)] if dags else [],
            "total": len(rows),
            "found": len(rows_found),
            "unread": sum(not row["is_read"] for row in rows),
            "runs": rows_found,
        }

    def rows(self, readable: Collection[str]) -> list[dict[str, Any]]:
        """Return all runs of readable DAGs, newest first."""
        return chosen(self._rows(self.our_dags() & set(readable)), RunQuery())

    def keys(self, readable: Collection[str]) -> set[str]:
        """Return the keys ``<dag>/<run>`` of all runs of readable DAGs."""
        return {f"{run.dag}/{run.run}" for run in self._listed(self.our_dags() & set(readable))}

    def page(self, answer: Mapping[str, Any], *, nonce: str, site: str = "") -> str:
        """Return the list as a page.

        Args:
            answer: Of this list.
            nonce: Of the page's scripts and styles.
            site: Path that Airflow is served under, without a slash at its end.
        """
        query = answer["query"]
        return template("runs.html.jinja").render(
            title="Runs",
            answer=answer,
            query=query,
            rows=[with_address(row, site) for row in answer["runs"][:ROWS_SHOWN]],
            filters=FILTERS,
            refresh_ms=REFRESH_MS if any(row["state"] in _LIVE for row in answer["runs"][:ROWS_SHOWN]) else None,
            numbers=NUMBERS,
            schedules=_shown_schedules(answer["schedules"], query.get("dag", "")),
            sorts=_sorts(query["sort"]),
            columns=[_column(group, query, site) for group in COLUMNS],
            dataset_url=lambda name: f"{site}{dataset_url(name)}",
            json_url=_address(site, {**query, "format": "json"}),
            nonce=nonce,
            site=f"{site}{URL_PREFIX}",
            here="runs",
        )

    def _rows(self, dags: Collection[str]) -> list[dict[str, Any]]:
        read = self._reader.begin()
        now = self._clock()
        return [row_of(run, self._summary(run, read), now=now) for run in self._listed(dags)]

    def _listed(self, dags: Collection[str]) -> Iterator[KnownRun]:
        """Return Airflow's runs, newest first, then folders of runs that Airflow has deleted."""
        listed = self._airflow_runs(dags) if dags else []
        yield from (run for run in listed if run.dag in dags)
        names = {(run.dag, safe_run_id(run.run)): run for run in listed}
        for dag in sorted(dags):
            folder = self._installation.home / "runs" / dag
            paths = sorted(folder.iterdir()) if folder.is_dir() else []
            for path in paths:
                trial = comparison_of(path.name)
                if trial is not None and (comparison := names.get((dag, trial[0]))) is not None:
                    yield known_trial(comparison, path)
                    continue
                if path.is_dir() and (dag, path.name) not in names and is_folder_name(path.name):
                    yield KnownRun(dag, path.name, None, when=path.stat().st_mtime)

    def _summary(self, run: KnownRun, read: Callable[[Path, bool], RunSummary | None]) -> RunSummary | None:
        folder = find_run(self._installation, run.dag, run.run)
        if folder is None or not folder.is_dir():
            return RunSummary(made_of={})
        return read(folder, run.state in _OVER)


def query_of(parameters: Mapping[str, str]) -> RunQuery:
    """Return the query of an address. Empty parameters are ignored."""
    filters = tuple((name, parameters[name]) for name in FILTERS if parameters.get(name))
    return RunQuery(parameters.get("search", ""), filters, parameters.get("sort") or "-when")


def _address(site: str, query: Mapping[str, str]) -> str:
    return f"{site}{RUNS_URL}?{urllib.parse.urlencode({name: value for name, value in query.items() if value})}"


def _shown_schedules(schedules: Sequence[Mapping[str, Any]], dag: str) -> list[Mapping[str, Any]]:
    """Return the schedule of the chosen DAG; without a choice, the schedules of DAGs that start by themselves."""
    return [schedule for schedule in schedules if (schedule["dag"] == dag if dag else schedule["text"] != BY_HAND)]


def _column(group: Sequence[tuple[str | None, str]], query: Mapping[str, str], site: str) -> dict[str, Any]:
    """Return the head of a column: the links for sorting, and the present direction."""
    links = [
        {"word": word, "url": _sorted_url(query, name, site), "direction": _direction(query, name)}
        for name, word in group
    ]
    direction = next((link["direction"] for link in links if link["direction"]), "")
    return {"links": links, "direction": direction, "is_number": group[0][0] in NUMBERS}


def _first_direction(name: str) -> str:
    return f"-{name}" if name in _GREATEST_FIRST else name


def _sorted_url(query: Mapping[str, str], name: str | None, site: str) -> str:
    """Return the address of the list sorted by a column; for the present sort column, in reverse."""
    if name is None:
        return ""
    first = _first_direction(name)
    return _address(site, {**query, "sort": _reverse(first) if query["sort"] == first else first})


def _reverse(sort: str) -> str:
    return sort.removeprefix("-") if sort.startswith("-") else f"-{sort}"


def _sorts(now: str) -> list[tuple[str, str]]:
    """Return the sort choices as (value, word): each column's first direction, and the present sort."""
    words = {_first_direction(name): word for group in COLUMNS for name, word in group if name is not None}
    if now not in words and (other := words.get(_reverse(now))):
        words[now] = f"{other}, the other way round"
    return list(words.items())


def _direction(query: Mapping[str, str], name: str | None) -> str:
    if name is None or query["sort"].removeprefix("-") != name:
        return ""
    return "descending" if query["sort"].startswith("-") else "ascending"


def with_address(row: Mapping[str, Any], site: str) -> dict[str, Any]:
    """Return a row with addresses for the page.

    ``url`` is the run's page, ``answer_url`` the page for a person's approval, and ``key`` the run's name in a
    comparison.
    """
    asks = row.get("asks")
    return {
        **row,
        "url": site + run_url(row["dag"], row["run"], "training"),
        "answer_url": site + answer_url(row["dag"], row["run"], asks) if asks else None,
        "key": f"{row['dag']}/{row['run']}",
    }
