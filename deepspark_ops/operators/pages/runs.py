"""The page "Runs": all runs of the DAGs that a person may read, chosen by the page's address."""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from deepspark_ops.operators.pages.addresses import RUNS_URL, URL_PREFIX, find_run, run_url
from deepspark_ops.operators.pages.templates import template
from deepspark_ops.operators.run_plan import Places, safe_run_id
from deepspark_ops.run_index.index_file import SummaryReader
from deepspark_ops.run_index.listing import FILTERS, KnownRun, RunQuery, choices, chosen, row_of
from deepspark_ops.run_index.summary import RunSummary

ANSWER_VERSION: Final = 1
ROWS_SHOWN: Final = 500
_OVER: Final = ("success", "failed", None)
COLUMNS: Final = (
    ("run", "run"), ("state", "state"), ("net", "net"), ("solver", "solver"), ("dataset", "dataset"),
    ("strategy", "strategy"), ("n_workers", "workers"), ("tau", "tau"), ("clock", "clock"), ("accuracy", "accuracy"),
    ("loss", "loss"), (None, "curve"), ("images_per_s", "images/s"), ("seconds", "duration"), ("when", "when (UTC)"),
    ("who", "who"),
)  # fmt: skip
_GREATEST_FIRST: Final = ("n_workers", "clock", "accuracy", "images_per_s", "seconds", "when")
NUMBERS: Final = ("n_workers", "tau", "clock", "accuracy", "loss", "images_per_s", "seconds")


class RunsPage:
    """The list. Thread-safe."""

    def __init__(
        self,
        places: Places,
        airflow_runs: Callable[[Collection[str]], list[KnownRun]],
        tagged_dags: Callable[[], set[str]],
        *,
        reader: SummaryReader | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """List what is in ``places``.

        Args:
            places: Where runs are.
            airflow_runs: Returns the runs of some DAGs, newest first.
            tagged_dags: Returns the DAGs that are ours, whether they have run or not.
            reader: Reads the runs' folders.
            clock: Seconds since the epoch.
        """
        self._places = places
        self._airflow_runs = airflow_runs
        self._tagged_dags = tagged_dags
        self._reader = reader or SummaryReader()
        self._clock = clock

    def our_dags(self) -> set[str]:
        """Return the DAGs that are ours: by their tag, or since they have a run's folder."""
        runs = self._places.home / "runs"
        folders = {path.name for path in runs.iterdir() if path.is_dir()} if runs.is_dir() else set()
        return folders | self._tagged_dags()

    def answer(self, readable: Collection[str], query: RunQuery) -> dict[str, Any]:
        """Return the list that a person asked for.

        Args:
            readable: The DAGs that the person may read; nothing of others is in the answer.
            query: What is asked for.
        """
        dags = self.our_dags() & set(readable)
        read = self._reader.begin()
        now = self._clock()
        rows = [row_of(known, self._summary(known, read), now=now) for known in self._known(dags)]
        found = chosen(rows, query)
        return {
            "format_version": ANSWER_VERSION,
            "query": {"search": query.search, **dict(query.filters), "sort": query.sort},
            "choices": choices(rows),
            "total": len(rows),
            "found": len(found),
            "unread": sum(not row["is_read"] for row in rows),
            "runs": found,
        }

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
            numbers=NUMBERS,
            columns=[(name, word, _sorted_url(query, name, site), _direction(query, name)) for name, word in COLUMNS],
            json_url=_address(site, {**query, "format": "json"}),
            nonce=nonce,
            site=f"{site}{URL_PREFIX}",
            here="runs",
        )

    def _known(self, dags: Collection[str]) -> Iterator[KnownRun]:
        """Return what Airflow knows, newest first, then folders of runs that it has forgotten."""
        known = self._airflow_runs(dags) if dags else []
        yield from (run for run in known if run.dag in dags)
        names = {(run.dag, safe_run_id(run.run)) for run in known}
        for dag in sorted(dags):
            folder = self._places.home / "runs" / dag
            paths = sorted(folder.iterdir()) if folder.is_dir() else []
            for path in paths:
                if path.is_dir() and (dag, path.name) not in names and safe_run_id(path.name) == path.name:
                    yield KnownRun(dag, path.name, None, when=path.stat().st_mtime)

    def _summary(self, known: KnownRun, read: Callable[[Path, bool], RunSummary | None]) -> RunSummary | None:
        folder = find_run(self._places, known.dag, known.run)
        if folder is None or not folder.is_dir():
            return RunSummary(made_of={})
        return read(folder, known.state in _OVER)


def query_of(parameters: Mapping[str, str]) -> RunQuery:
    """Return what an address asks for; parameters that are empty ask for nothing."""
    filters = tuple((name, parameters[name]) for name in FILTERS if parameters.get(name))
    return RunQuery(parameters.get("search", ""), filters, parameters.get("sort") or "-when")


def _address(site: str, query: Mapping[str, str]) -> str:
    return f"{site}{RUNS_URL}?{urllib.parse.urlencode({name: value for name, value in query.items() if value})}"


def _sorted_url(query: Mapping[str, str], name: str | None, site: str) -> str:
    """Return the address of the list sorted by a column: the other way round if it is already."""
    if name is None:
        return ""
    first, second = (f"-{name}", name) if name in _GREATEST_FIRST else (name, f"-{name}")
    return _address(site, {**query, "sort": second if query["sort"] == first else first})


def _direction(query: Mapping[str, str], name: str | None) -> str:
    if name is None or query["sort"].removeprefix("-") != name:
        return ""
    return "descending" if query["sort"].startswith("-") else "ascending"


def with_address(row: Mapping[str, Any], site: str) -> dict[str, Any]:
    """Return a row with ``url`` of the run's page and ``key``, by which a comparison names the run."""
    return {**row, "url": site + run_url(row["dag"], row["run"], "training"), "key": f"{row['dag']}/{row['run']}"}
