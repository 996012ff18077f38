"""The page "Look over many": figures against settings of up to 1,000 runs of a list, as charts and correlations."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from deepspark_ops.file_stamp import Stamp
from deepspark_ops.operators.pages.addresses import RUNS_URL, URL_PREFIX, find_run, run_url
from deepspark_ops.operators.pages.lists.run_columns import list_address
from deepspark_ops.operators.pages.lists.runs import AskedRuns, RunsPage
from deepspark_ops.operators.pages.static_files import chart_library_name
from deepspark_ops.operators.pages.templates import template
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.run_index.many_runs import MOST_RUNS, correlations, main_figure, plain_columns, run_columns
from deepspark_ops.run_index.settings import settings_of
from deepspark_ops.run_index.summary import RunSummary, stamps

ANSWER_VERSION: Final = 1
OVERVIEW_URL: Final = f"{RUNS_URL}/overview"
_SETTINGS_KEPT: Final = 5_000
"""Runs whose settings stay in memory."""


class OverviewPage:
    """The overview. Thread-safe."""

    def __init__(self, installation: Places, runs: RunsPage) -> None:
        """Look over the runs of the list ``runs`` in ``installation``."""
        self._installation = installation
        self._runs = runs
        self._lock = threading.Lock()
        self._settings: dict[Path, tuple[tuple[Stamp, ...], dict[str, str]]] = {}

    def answer(self, readable: Collection[str], query: AskedRuns) -> dict[str, Any]:
        """Return the columns of the runs that a list shows, the first 1,000 in the list's order.

        Nothing of DAGs that the person may not read is in the answer.
        """
        listed = self._runs.answer(readable, query)
        rows = listed["runs"][:MOST_RUNS]
        columns = run_columns(rows, [self._settings_of(row) for row in rows])
        figure = main_figure(columns)
        return {
            "format_version": ANSWER_VERSION,
            "query": listed["query"],
            "filter_error": listed["filter_error"],
            "found": listed["found"],
            "figure": figure,
            "runs": [
                {
                    **{name: row[name] for name in ("name", "run", "dag", "state")},
                    "path": run_url(row["dag"], row["run"], "training"),
                }
                for row in rows
            ],
            "columns": plain_columns(columns),
            "correlations": [] if figure is None else [asdict(row) for row in correlations(columns, figure)],
        }

    def page(self, answer: Mapping[str, Any], *, nonce: str, site: str = "") -> str:
        """Return the overview as a page, see ``answers.shown``."""
        query = answer["query"]
        json_url = list_address(site, {**query, "format": "json"}).replace(RUNS_URL, OVERVIEW_URL, 1)
        return template("overview.html.jinja").render(
            title="Look over many",
            answer=answer,
            data_url=json_url,
            list_url=list_address(site, query),
            airflow_site=site,
            chart_library=chart_library_name(),
            nonce=nonce,
            site=f"{site}{URL_PREFIX}",
            here="runs",
        )

    def _settings_of(self, row: Mapping[str, Any]) -> dict[str, str]:
        """Return the settings of a run, from memory for as long as its files stay the same."""
        folder = find_run(self._installation, row["dag"], row["run"])
        if folder is None:
            return {}
        present = stamps(folder)
        with self._lock:
            earlier = self._settings.get(folder)
        if earlier is not None and earlier[0] == present:
            return earlier[1]
        summary = RunSummary(net=row["net"], dataset_digest=row["dataset_digest"])
        settings = settings_of(folder, summary) | {"dataset": row["dataset"] or ""}  # its name, not its place
        with self._lock:
            if len(self._settings) >= _SETTINGS_KEPT:
                self._settings.clear()
            self._settings[folder] = present, settings
        return settings
