"""The page "Runs": all runs of readable DAGs, filtered by the page's address."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from deepspark_ops.errors import ConfigError
from deepspark_ops.operators.pages.addresses import (
    RUNS_URL,
    URL_PREFIX,
    answer_url,
    dataset_url,
    find_run,
    run_api_url,
    run_url,
)
from deepspark_ops.operators.pages.lists.run_columns import column_heads, list_address, sort_choices
from deepspark_ops.operators.pages.run.run_parts import dag_runs_by_prefix, find_dag_run, known_part
from deepspark_ops.operators.pages.run.trials import known_trial
from deepspark_ops.operators.pages.templates import template
from deepspark_ops.operators.tasks.run_plan import Places, is_folder_name, safe_run_id
from deepspark_ops.registry.promoted_runs import PromotedRuns
from deepspark_ops.run_index.filter_language import FIELDS, OPERATORS, Condition, parse_filter
from deepspark_ops.run_index.index_file import SUMMARIES_KEPT, SummaryReader
from deepspark_ops.run_index.listing import (
    ALL,
    ARCHIVES,
    ASKS,
    FILTERS,
    WORKS,
    KnownRun,
    RunQuery,
    choices,
    chosen,
    row_of,
    with_curve,
)
from deepspark_ops.run_index.schedule import BY_HAND, Schedule
from deepspark_ops.run_index.summary import RunSummary
from deepspark_ops.run_label.names import TRAINING
from deepspark_ops.trials.plan import comparison_of

ANSWER_VERSION: Final = 2
ROWS_SHOWN: Final = 100
"""Rows of a page."""
REFRESH_MS: Final = 30_000
"""Between two requests of a page with a live run: twenty open pages ask less than once a second."""
SHARED_S: Final = 10.0
"""Age of the rows that open pages share when they refresh themselves; a person's request reads all runs."""
_LIVE: Final = ("waiting", "running")
_OVER: Final = ("success", "failed", None)
TRIGGER_DAG: Final = "deepspark_train"
"""DAG that an empty list leads to."""
_TABS: Final = {TRAINING: "trainings", "other": "comparisons and upkeep", ALL: "all"}
_ARCHIVES: Final = {"hide": "hidden", ALL: "shown, too", "only": "only the archive"}


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
        self._promoted_runs = PromotedRuns()
        self._kept_rows: dict[tuple[str, str], tuple[KnownRun, RunSummary | None, bool, dict[str, Any]]] = {}
        self._shared: tuple[Collection[str], float, list[dict[str, Any]]] | None = None

    def our_dags(self) -> set[str]:
        """Return our DAGs: DAGs with our tag, and DAGs with a folder of runs."""
        runs = self._installation.home / "runs"
        folders = {path.name for path in runs.iterdir() if path.is_dir()} if runs.is_dir() else set()
        return folders | self._tagged_dags()

    def answer(self, readable: Collection[str], query: AskedRuns, *, is_refresh: bool = False) -> dict[str, Any]:
        """Return the list for a query.

        Args:
            readable: The DAGs that the person may read; nothing of others is in the answer.
            query: What is asked for.
            is_refresh: Whether an open page asks by itself; the rows may then be ``SHARED_S`` old.
        """
        dags = self.our_dags() & set(readable)
        rows = self._rows(dags, most_age_s=SHARED_S if is_refresh else 0.0)
        chosen_rows = [] if query.error else chosen(rows, query.runs)
        pages = max(1, -(-len(chosen_rows) // ROWS_SHOWN))
        counted = [row for row in rows if not row["archived"]]
        n_trainings = sum(row["work"] == TRAINING for row in counted)
        return {
            "format_version": ANSWER_VERSION,
            "query": query.fields(),
            "filter_error": query.error,
            "choices": choices(rows),
            "schedules": [asdict(schedule) for schedule in self._schedules(dags)] if dags else [],
            "total": len(rows),
            "n_archived": len(rows) - len(counted),
            "works": {TRAINING: n_trainings, "other": len(counted) - n_trainings, ALL: len(counted)},
            "found": len(chosen_rows),
            "page": min(query.page, pages),
            "pages": pages,
            "unread": sum(not row["is_read"] for row in rows),
            "runs": chosen_rows,
        }

    def rows(self, readable: Collection[str]) -> list[dict[str, Any]]:
        """Return all runs of readable DAGs, newest first."""
        return chosen(self._rows(self.our_dags() & set(readable)), RunQuery())

    def keys(self, readable: Collection[str]) -> set[str]:
        """Return the keys ``<dag>/<run>`` of all runs of readable DAGs."""
        return {f"{run.dag}/{run.run}" for run in self._listed(self._folders(self.our_dags() & set(readable)))}

    def page(
        self, answer: Mapping[str, Any], *, nonce: str, site: str = "", user: str = "", token: str = "",
        may_trigger: bool = False, may_answer: Callable[[Collection[str]], bool] = lambda dags: False,
    ) -> str:  # fmt: skip
        """Return the list as a page, see ``answers.shown``.

        ``user`` is the person's name, for the columns that the browser keeps. ``token`` is for the forms of a person
        who may change runs, empty for other persons. ``may_trigger``: whether the person may trigger ``TRIGGER_DAG``.
        ``may_answer`` returns whether the person may answer the waiting tasks of some DAGs.
        """
        query, number = answer["query"], answer["page"]
        shown_rows = answer["runs"][(number - 1) * ROWS_SHOWN : number * ROWS_SHOWN]

        def address(**changes: Any) -> str:
            return list_address(site, {**query, **changes})

        return template("runs.html.jinja").render(
            title="Runs",
            answer=answer,
            query=query,
            rows=[with_address(with_curve(row), site, may_answer) for row in shown_rows],
            filters=FILTERS,
            fields=FIELDS,
            operators=OPERATORS,
            archives=_ARCHIVES.items(),
            tabs=[
                {
                    "word": word,
                    "count": answer["works"][work],
                    "is_here": query["work"] == work,
                    "url": address(work=work),
                }
                for work, word in _TABS.items()
            ],
            refresh_ms=REFRESH_MS if any(row["state"] in _LIVE for row in shown_rows) else None,
            schedules=_shown_schedules(answer["schedules"], query.get("dag", "")),
            sorts=sort_choices(query["sort"]),
            columns=column_heads(query, site),
            dataset_url=lambda name: f"{site}{dataset_url(name)}",
            json_url=address(format="json"),
            csv_url=address(format="csv"),
            parquet_url=address(format="parquet"),
            archive_shown_url=address(archived=ALL),
            archive_url=_archive_address(site, query),
            overview_url=address().replace(RUNS_URL, f"{RUNS_URL}/overview", 1),
            previous_url=address(page=number - 1) if number > 1 else "",
            next_url=address(page=number + 1) if number < answer["pages"] else "",
            trigger_dag=TRIGGER_DAG,
            trigger_url=f"{site}/dags/{TRIGGER_DAG}" if may_trigger else "",
            user=user,
            token=token,
            airflow_site=site,
            nonce=nonce,
            site=f"{site}{URL_PREFIX}",
            here="runs",
        )

    def _rows(self, dags: Collection[str], *, most_age_s: float = 0.0) -> list[dict[str, Any]]:
        now, shared = self._clock(), self._shared
        if shared is not None and shared[0] == dags and now - shared[1] < most_age_s:
            return shared[2]
        read, folders = self._reader.begin(), self._folders(dags)
        promoted = self._promoted_runs.keys(self._installation.models)
        rows = [
            self._row(
                run, self._summary(run, folders[run.dag], read), (run.dag, safe_run_id(run.run)) in promoted, now=now
            )
            for run in self._listed(folders)
        ]
        self._shared = dags, now, rows
        return rows

    def _row(self, run: KnownRun, summary: RunSummary | None, is_promoted: bool, *, now: float) -> dict[str, Any]:
        """Return a run's row; of a run that is over the earlier row, unless something of it is another object now."""
        key = (run.dag, run.run)
        earlier = self._kept_rows.get(key)
        if earlier is not None and earlier[0] is run and earlier[1] is summary and earlier[2] is is_promoted:
            return earlier[3]
        row = row_of(run, summary, now=now, is_promoted=is_promoted)
        if run.ended is not None:
            if len(self._kept_rows) >= SUMMARIES_KEPT:
                self._kept_rows.clear()
            self._kept_rows[key] = run, summary, is_promoted, row
        return row

    def _folders(self, dags: Collection[str]) -> dict[str, dict[str, str]]:
        """Return DAG -> name -> path of the runs' folders."""
        return {dag: _folder_paths(self._installation.home / "runs" / dag) for dag in dags}

    def _listed(self, folders: Mapping[str, Mapping[str, str]]) -> Iterator[KnownRun]:
        """Yield Airflow's runs and the runs of folders that Airflow has deleted.

        A DAG run with several runs and without a folder of its own is left out, for its runs stand in the list, unless
        the DAG run asks a person, or failed without a failed run.
        """
        listed = [run for run in self._airflow_runs(folders.keys()) if run.dag in folders] if folders else []
        names = {(run.dag, safe_run_id(run.run)): run for run in listed}
        dag_runs = cache(partial(dag_runs_by_prefix, listed))
        split_runs, with_failed_run = set(), set()
        for dag in sorted(folders):
            parent = self._installation.home / "runs" / dag
            for name, path in sorted(folders[dag].items()):
                if (dag, name) in names or not is_folder_name(name):
                    continue
                trial = comparison_of(name)
                if trial is not None and (comparison := names.get((dag, trial[0]))) is not None:
                    yield known_trial(comparison, parent / name)
                elif (dag_run := find_dag_run(dag_runs, dag, name)) is not None:
                    part = known_part(dag_run, parent / name)
                    split_runs.add((dag, dag_run.run))
                    if part.state == "failed":
                        with_failed_run.add((dag, dag_run.run))
                    yield part
                else:
                    yield KnownRun(dag, name, None, when=os.stat(path or parent / name).st_mtime)
        for run in listed:
            is_split = (run.dag, run.run) in split_runs
            has_news = run.asks is not None or (run.state == "failed" and (run.dag, run.run) not in with_failed_run)
            if not is_split or has_news or safe_run_id(run.run) in folders[run.dag]:
                yield run

    def _summary(
        self, run: KnownRun, paths: Mapping[str, str], read: Callable[[str, bool], RunSummary | None]
    ) -> RunSummary | None:
        path = paths.get(safe_run_id(run.run)) or paths.get(run.run)
        if not path:
            folder = find_run(self._installation, run.dag, run.run)  # a link must stay in the folder of runs
            if folder is None or not folder.is_dir():
                return RunSummary()
            path = str(folder)
        return read(path, run.state in _OVER)


def _folder_paths(parent: Path) -> dict[str, str]:
    """Return name -> path of the folders in a folder, an empty path for a link; nothing for a missing folder."""
    try:
        with os.scandir(parent) as entries:
            return {entry.name: "" if entry.is_symlink() else entry.path for entry in entries if entry.is_dir()}
    except (FileNotFoundError, NotADirectoryError):
        return {}


@dataclass(frozen=True)
class AskedRuns:
    """Query of an address.

    Attributes:
        runs: What the list is asked for.
        filter: Text of the filter.
        error: Mistake in the filter, one line; empty without a mistake.
        page: Number of the page, from 1.
    """

    runs: RunQuery
    filter: str = ""
    error: str = ""
    page: int = 1

    def fields(self) -> dict[str, Any]:
        """Return the query as parameters of an address."""
        chosen_fields = {"work": self.runs.work, "archived": self.runs.archived, "sort": self.runs.sort}
        return {"search": self.runs.search, "filter": self.filter, **dict(self.runs.filters), **chosen_fields}


def query_of(parameters: Mapping[str, str]) -> AskedRuns:
    """Return the query of an address. Empty parameters are ignored."""
    filters = tuple((name, parameters[name]) for name in FILTERS if parameters.get(name))
    text, page = parameters.get("filter", "").strip(), parameters.get("page", "")
    error, conditions = "", list[Condition]()
    try:
        conditions = parse_filter(text)
    except ConfigError as mistake:
        error = str(mistake)
    runs = RunQuery(
        parameters.get("search", ""),
        filters,
        tuple(conditions),
        work=_word(parameters.get("work"), WORKS),
        archived=_word(parameters.get("archived"), ARCHIVES),
        sort=parameters.get("sort") or "-when",
    )
    return AskedRuns(runs, text, error, max(1, int(page)) if page.isdecimal() and len(page) < 7 else 1)


def _word(value: str | None, words: Sequence[str]) -> str:
    """Return a known word of an address, else the first word."""
    return next((word for word in words if word == value), words[0])


def _archive_address(site: str, query: Mapping[str, Any]) -> str:
    """Return the address of the form that archives; from a list of the archive, that takes out of the archive."""
    take_out = {"take_out": "1"} if query["archived"] == "only" else {}
    return list_address(site, {**query, **take_out}).replace(RUNS_URL, f"{RUNS_URL}/archive", 1)


def _shown_schedules(schedules: Sequence[Mapping[str, Any]], dag: str) -> list[Mapping[str, Any]]:
    """Return the schedule of the chosen DAG; without a choice, the schedules of DAGs that start by themselves."""
    return [schedule for schedule in schedules if (schedule["dag"] == dag if dag else schedule["text"] != BY_HAND)]


def with_address(
    row: Mapping[str, Any], site: str, may_answer: Callable[[Collection[str]], bool] = lambda dags: False
) -> dict[str, Any]:
    """Return a row with addresses for the page.

    ``url`` is the run's page, ``answer_url`` the page for the approval by a person who may. ``again_url`` and
    ``api_url`` are the DAG run and the run in Airflow's API, of a run that Airflow has. ``key`` is the run's name in a
    comparison.
    """
    asks = row.get("asks")
    in_airflow = row.get("kind") and comparison_of(row["run"]) is None
    return {
        **row,
        "url": site + run_url(row["dag"], row["run"], "training"),
        "answer_url": site + answer_url(row["dag"], row["run"], asks) if asks and may_answer([row["dag"]]) else None,
        "again_url": site + run_api_url(row["dag"], row["dag_run"] or row["run"]) if in_airflow else None,
        "api_url": site + run_api_url(row["dag"], row["run"]) if in_airflow and not row["dag_run"] else None,
        "is_live": row["state"] in (*_LIVE, ASKS),
        "key": f"{row['dag']}/{row['run']}",
    }
