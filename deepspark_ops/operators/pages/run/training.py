"""The page "Training" of a run: numbers as JSON, and a page with the last values that needs no script."""

from __future__ import annotations

import shlex
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from deepspark_ops.evaluate.per_sample.row_reader import ROWS_NAME
from deepspark_ops.operators.pages.addresses import (
    RUNS_URL,
    URL_PREFIX,
    answer_url,
    dag_run_url,
    file_url,
    find_run,
    model_url,
    run_api_url,
    run_url,
)
from deepspark_ops.operators.pages.run.champion import champion_of, evaluation_of
from deepspark_ops.operators.pages.run.run_parts import run_parts
from deepspark_ops.operators.pages.run.trials import ComparedTrials, comparison_of_trial
from deepspark_ops.operators.pages.static_files import chart_library_name
from deepspark_ops.operators.pages.templates import template
from deepspark_ops.operators.tasks.run_plan import Places, read_decided
from deepspark_ops.run_label.label import read_label
from deepspark_ops.run_label.names import TRAINING, default_name, work_of_stages
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.run_view.answer import training_answer
from deepspark_ops.run_view.chart_lines import is_share
from deepspark_ops.run_view.reading import RunReadings
from deepspark_ops.run_view.stage_status import NO_MESSAGE, read_statuses
from deepspark_ops.run_view.state import AirflowRun, RunError, state_of
from deepspark_ops.trials.plan import comparison_of

POLL_S: Final = 2.0
QUIET_S: Final = 15.0
"""After this long without an event a page says how old its numbers are."""
_FRAGMENTS: Final = ("head", "below")
_SHARES: Final = (("compute_s", "computing"), ("data_s", "waiting for data"), ("exchange_s", "exchanging"))


class TrainingPage:
    """The page of every run. Thread-safe."""

    def __init__(
        self,
        installation: Places,
        airflow_run: Callable[[str, str], AirflowRun | None],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Look for runs in ``installation``; ``airflow_run(dag_id, run_id)`` returns Airflow's run."""
        self._installation = installation
        self._airflow_run = airflow_run
        self._clock = clock
        self._readings = RunReadings()

    def answer(self, dag_id: str, run_id: str, *, since: str = "", has_lines: bool = True) -> dict[str, Any]:
        """Return the run's numbers.

        ``since`` is ``cursor`` of an earlier answer, to get the points that are new; empty for all. ``has_lines``:
        whether the charts' lines are wanted.
        """
        folder = find_run(self._installation, dag_id, run_id)
        airflow = self._airflow_run(dag_id, run_id) if folder is not None else None
        paths = RunPaths(folder or self._installation.home / "no such run")
        reading = self._readings.of(paths.root) if paths.root.is_dir() else RunReadings().of(paths.root)
        statuses = read_statuses(paths.root)
        elsewhere = {}
        if airflow is not None and airflow.first_task:
            elsewhere = read_statuses(self._installation.run_folder(dag_id, airflow.dag_run))
        airflow = airflow and airflow.of_run(statuses, elsewhere)
        trials = ComparedTrials.of(paths.root, airflow)
        with reading.lock:
            reading.refresh()
            state = state_of(reading.progress, statuses, airflow, exists=paths.root.is_dir())
            if trials is not None:
                state = trials.state(statuses, airflow)
            if state.error is not None and state.error.text == NO_MESSAGE:
                state = replace(state, error=self._error_of_part(dag_id, run_id, state.error))
            numbers = training_answer(
                reading, state, statuses=statuses, airflow=airflow, now=self._clock(), run_dir=paths.root, since=since,
                has_lines=has_lines,
            )  # fmt: skip
        decided, label = read_decided(paths.root), read_label(paths.root)
        comparison = comparison_of_trial(paths.root)
        return {
            "dag": dag_id,
            "run": run_id,
            "name": label.name or (comparison or {}).get("name") or _default_name(dag_id, numbers, statuses, trials),
            "is_named": bool(label.name),
            **label.model_dump(mode="json", include={"tags", "archived"}),
            "dag_run": (airflow and airflow.dag_run) or run_id,
            "airflow": None if airflow is None or comparison is not None else {"note": airflow.note},
            "folder": str(paths.root),
            "has_report": (paths.evaluation / "report.html").is_file(),
            "has_samples": (paths.evaluation / ROWS_NAME).is_file(),
            "has_bundle": paths.bundle.is_dir(),
            "model": decided.model,
            "started": decided.started,
            "production": champion_of(paths.root, decided),
            "evaluation": evaluation_of(paths.root),
            "comparison": comparison,
            "trials": [] if trials is None else trials.rows(self._readings.of),
            **numbers,
        }

    def _error_of_part(self, dag_id: str, run_id: str, error: RunError) -> RunError:
        """Return the error of a task with the message in a run of the task's own, if there is a message."""
        for part in run_parts(self._installation, dag_id, run_id):
            folder = find_run(self._installation, dag_id, part)
            statuses = read_statuses(folder).values() if folder is not None else ()
            for status in statuses:
                if (status.task, status.status) == (error.task, "failed"):
                    return replace(error, text=status.message)
        return error

    def note(self, dag_id: str, run_id: str) -> str:
        """Return Airflow's note of a run; empty for a trial, and for a run that Airflow does not have."""
        airflow = None if comparison_of(run_id) is not None else self._airflow_run(dag_id, run_id)
        return "" if airflow is None else airflow.note

    def weights(self, dag_id: str, run_id: str, blob: str = "") -> dict[str, Any] | None:
        """Return the histograms of a watched run's blob, or without a name the sizes of all blobs.

        None for a run without a watch, and for an unknown blob.
        """
        folder = find_run(self._installation, dag_id, run_id)
        if folder is None or not folder.is_dir():
            return None
        reading = self._readings.of(folder)
        with reading.lock:
            reading.refresh()
            if not reading.weights:
                return None
            return reading.weights.histograms(blob) if blob else reading.weights.answer()

    def fragments(self, answer: Mapping[str, Any], *, site: str = "", may_answer: bool = False) -> dict[str, str]:
        """Return the changing parts of the page as HTML."""
        view = _view(answer, site, may_answer=may_answer)
        return {name: template(f"{name}.html.jinja").render(**view) for name in _FRAGMENTS}

    def page(
        self, answer: Mapping[str, Any], *, nonce: str, site: str = "", is_report: bool = False, token: str = "",
        may_answer: bool = False,
    ) -> str:  # fmt: skip
        """Return the whole page, see ``answers.shown``.

        ``is_report``: whether the page stands in for a report that is not there yet. ``token`` is for the forms of a
        person who may change the run, empty for other persons. ``may_answer``: whether the person may answer a task
        that waits for approval.
        """
        return template("training.html.jinja").render(
            **_view(answer, site, may_answer=may_answer),
            nonce=nonce,
            token=token,
            may_change=bool(token),
            **_label_addresses(answer, site),
            is_report=is_report,
            poll_ms=round(1e3 * POLL_S),
            chart_library=chart_library_name(),
        )


def _label_addresses(answer: Mapping[str, Any], site: str) -> dict[str, str]:
    dag, run = answer["dag"], answer["run"]
    archived = urllib.parse.urlencode({"archived": "all", "search": run})
    return {
        "airflow_api": site + run_api_url(dag, answer["dag_run"]) if answer["airflow"] else "",
        "label_url": site + run_url(dag, run, "label"),
        "archive_url": f"{site}{RUNS_URL}/archive?{archived}",
    }


def _default_name(
    dag_id: str, numbers: Mapping[str, Any], statuses: Iterable[str], trials: ComparedTrials | None
) -> str:
    """Return the run's default name: before and without a training the work of its stages, else the DAG's id."""
    if trials is not None:
        return f"Comparison of {len(trials.plan.trials)} trials"
    facts = {name: numbers[name] for name in ("net", "strategy", "n_workers", "max_iter")}
    work = TRAINING if numbers["net"] else work_of_stages(frozenset(statuses), has_trials=False, has_trained=False)
    return dag_id if work is None else default_name(work=work, solver=None, **facts)


def _view(answer: Mapping[str, Any], site: str, *, may_answer: bool) -> dict[str, Any]:
    state = answer["state"]
    pill = (state["text"], "waiting") if state["asks"] else (state["name"], state["name"])
    age = None if answer["news"] is None else max(0.0, answer["now"] - answer["news"])
    is_quiet = age is not None and age > QUIET_S and state["name"] in ("running", "starting")
    return {
        "run": answer,
        "state": state,
        "pill": dict(zip(("text", "kind"), pill, strict=True)),
        "shares": _SHARES,
        "compared_output": _compared_output(answer),
        "airflow_site": site,
        "site": f"{site}{URL_PREFIX}",
        "comparison_url": answer["comparison"]
        and site + run_url(answer["dag"], answer["comparison"]["run"], "training"),
        "quiet_s": age if is_quiet else None,
        "answer_url": site + answer_url(answer["dag"], answer["dag_run"], state["asks"])
        if state["asks"] and may_answer
        else None,
        "dag_run_url": site + dag_run_url(answer["dag"], answer["dag_run"]) if answer["airflow"] else "",
        "report_url": site + run_url(answer["dag"], answer["run"], "report"),
        "samples_url": site + run_url(answer["dag"], answer["run"], "samples"),
        "weights_url": site + run_url(answer["dag"], answer["run"], "weights"),
        "training_url": site + run_url(answer["dag"], answer["run"], "training"),
        "bundle_url": site + run_url(answer["dag"], answer["run"], "bundle"),
        "model_url": site + model_url(answer["model"]) if answer["model"] else "",
        "file_url": lambda name: site + file_url(answer["dag"], answer["run"], name),
        "tensorboard": f"tensorboard --logdir {shlex.quote(str(RunPaths(Path(answer['folder'])).tensorboard))}",
    }


def _compared_output(answer: Mapping[str, Any]) -> str | None:
    """Return the first test net's output beside production's accuracy: the net's first share of 1."""
    return next(
        (name for test in answer["tests"] if test["net"] == 0 for name in test["outputs"] if is_share(name)), None
    )
