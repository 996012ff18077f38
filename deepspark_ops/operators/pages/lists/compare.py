"""The page "Compare": curves of two to eight runs, a chart per quantity; settings; confusion matrices."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from deepspark_ops.operators.pages.addresses import RUNS_URL, URL_PREFIX, find_run, run_url
from deepspark_ops.operators.pages.lists.compared_scores import (
    confusion_of,
    differences_of,
    drawn_confusion,
    drawn_difference,
    figures_of,
    metrics_of,
    pair_of,
)
from deepspark_ops.operators.pages.lists.runs import RunsPage, with_address
from deepspark_ops.operators.pages.refused import Refused, no_run
from deepspark_ops.operators.pages.static_files import chart_library_name
from deepspark_ops.operators.pages.templates import template
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.run_index.listing import with_curve
from deepspark_ops.run_index.settings import differences, settings_of
from deepspark_ops.run_index.summary import RunSummary
from deepspark_ops.run_view.chart_lines import COMPARED_CHARTS, compared_lines
from deepspark_ops.run_view.reading import RunReadings

ANSWER_VERSION: Final = 1
LEAST_RUNS, MOST_RUNS = 2, 8
PAIR: Final = 2
"""Of so many runs samples are compared one by one."""
POLL_S: Final = 10.0


class ComparePage:
    """The comparison. Thread-safe."""

    def __init__(self, installation: Places, runs: RunsPage) -> None:
        """Compare runs of ``installation`` from the list ``runs``."""
        self._installation = installation
        self._runs = runs
        self._readings = RunReadings(MOST_RUNS)

    def answer(self, readable: Collection[str], keys: Sequence[str]) -> dict[str, Any]:
        """Return the comparison in the form of the page Training.

        ``keys`` are ``<dag>/<run>`` of each run, in the order of their colours.

        Raises:
            Refused: Too few or too many runs, or a run that is not there or not to be read.
        """
        chosen = list(dict.fromkeys(keys))
        if not LEAST_RUNS <= len(chosen) <= MOST_RUNS:
            msg = f"{len(chosen)} runs are chosen; choose {LEAST_RUNS} to {MOST_RUNS} in the list"
            raise Refused(msg, 400)
        rows = {f"{row['dag']}/{row['run']}": row for row in self._runs.rows(readable)}
        for key in chosen:
            if key not in rows:
                raise no_run(key)
        labels = _labels([rows[key] for key in chosen])
        runs = [self._run(rows[key], labels[number], number) for number, key in enumerate(chosen)]
        metrics = [run["metrics"] for run in runs]
        return {
            "format_version": ANSWER_VERSION,
            **_as_drawn(runs, is_over=all(rows[key]["state"] not in ("waiting", "running") for key in chosen)),
            "runs": [{**with_curve(rows[key]), "label": run["label"]} for key, run in zip(chosen, runs, strict=True)],
            "settings": differences([run["settings"] for run in runs]),
            "figures": figures_of(metrics),
            "confusions": [confusion_of(run) for run in metrics],
            "differences": differences_of(metrics, chosen, labels),
            "pair": pair_of([run["folder"] for run in runs], metrics, labels) if len(runs) == PAIR else None,
        }

    def page(self, answer: Mapping[str, Any], *, nonce: str, site: str = "", shows_all: bool = False) -> str:
        """Return the comparison as a page, see ``answers.shown``; ``shows_all``: also settings that are the same."""
        rows = [with_address(row, site) for row in answer["runs"]]
        url = f"{site}{RUNS_URL}/compare?{urllib.parse.urlencode([('run', row['key']) for row in rows])}"
        is_pair = answer["pair"] is not None and answer["pair"]["why_not"] is None
        return template("compare.html.jinja").render(
            title="Compare",
            rows=rows,
            settings=[run for run in answer["settings"] if shows_all or run["differs"]],
            shows_all=shows_all,
            confusions=[
                (row, run, drawn_confusion(run, _samples_url(site, row, rows[1 - at] if is_pair else None)))
                for at, (row, run) in enumerate(zip(rows, answer["confusions"], strict=True))
                if run
            ],
            figures=answer["figures"],
            differences=_differences(answer, rows, site),
            pair=answer["pair"] if answer["figures"] else None,
            pair_urls=[_samples_url(site, rows[at], rows[1 - at])({"outcome": "this"}) for at in range(PAIR)]
            if is_pair
            else [],
            url=url,
            poll_ms=round(1e3 * POLL_S),
            chart_library=chart_library_name(),
            nonce=nonce,
            site=f"{site}{URL_PREFIX}",
            here="runs",
        )

    def _run(self, row: Mapping[str, Any], label: str, number: int) -> dict[str, Any]:
        folder = find_run(self._installation, row["dag"], row["run"]) or self._installation.home / "no such run"
        reading = self._readings.of(folder)
        with reading.lock:
            reading.refresh()
            lines, seconds = compared_lines(reading, label, number)
        summary = RunSummary(net=row["net"], dataset_digest=row["dataset_digest"])
        return {
            "label": label,
            "lines": lines,
            "seconds": seconds,
            "settings": settings_of(folder, summary),
            "folder": folder,
            "metrics": metrics_of(folder),
        }


def _labels(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a label per run: the name, of a default name the parts that differ; the run id for equal labels.

    Example:
        >>> row = {"name": "LeNet, easgd x2", "is_named": False, "dag": "d", "run": "r"}
        >>> _labels([row, {**row, "name": "LeNet, sync x2"}, {**row, "name": "paper", "is_named": True}])
        ['easgd x2', 'sync x2', 'paper']
        >>> _labels([row, {**row, "run": "s"}])
        ['r', 's']
    """
    default_parts = [row["name"].split(", ") for row in rows if not row["is_named"]]
    common = set.intersection(*map(set, default_parts)) if len(default_parts) > 1 else set()
    names = [row["name"] if row["is_named"] else _without(row["name"], common) for row in rows]
    runs, with_dag = [row["run"] for row in rows], [f"{row['dag']}/{row['run']}" for row in rows]
    return [
        name if name and names.count(name) == 1 else run if runs.count(run) == 1 else run_of_dag
        for name, run, run_of_dag in zip(names, runs, with_dag, strict=True)
    ]


def _without(name: str, common: Collection[str]) -> str:
    return ", ".join(part for part in name.split(", ") if part not in common)


def _samples_url(
    site: str, row: Mapping[str, Any], other: Mapping[str, Any] | None
) -> Callable[[Mapping[str, Any]], str]:
    """Return a function from parameters to the address of a run's samples, beside the samples of another run."""
    second_run = {} if other is None else {"with": other["key"]}
    address = site + run_url(row["dag"], row["run"], "samples")
    return lambda parameters: f"{address}?{urllib.parse.urlencode({**second_run, **parameters})}"


def _differences(answer: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], site: str) -> list[dict[str, Any]]:
    """Return the differences with drawings; empty while no run has an evaluation."""
    confusions = answer["confusions"]
    if not any(confusions):
        return []
    return [
        {
            **row,
            "label": compared_row["label"],
            "picture": drawn_difference(
                confusions[0],
                confusion,
                [_samples_url(site, rows[0], compared_row), _samples_url(site, compared_row, rows[0])],
            )
            if row["why_not"] is None
            else None,
        }
        for row, compared_row, confusion in zip(answer["differences"], rows[1:], confusions[1:], strict=True)
    ]


def _as_drawn(runs: Sequence[Mapping[str, Any]], *, is_over: bool) -> dict[str, Any]:
    """Return what ``training.js`` draws."""
    lines = [line for run in runs for line in run["lines"]]
    return {
        "state": {"name": "compared", "is_over": is_over},
        "charts": [
            {"name": run.name, "title": run.title, "unit": run.unit, "is_first": run.is_first, "is_stacked": False}
            for run in COMPARED_CHARTS
        ],
        "lines": lines,
        "marks": [],
        "is_whole": True,
        "cursor": "",
        "points": sum(len(line["clock"]) for line in lines),
        "points_of": sum(line["points_of"] for line in lines),
        "minibatches_per_epoch": None,
        "origin": 1.0,  # each run's time counts from its own start; the span alone decides the axis' unit
        "news": 1.0 + max((run["seconds"] for run in runs), default=0.0),
        "now": 1.0,
    }
