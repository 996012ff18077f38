"""Numbers of a run for lists, from config, events and evaluation."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from caffe_import.file_access.regular_file import regular_bytes
from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.metrics import METRICS_NAME, classes_of, read_metrics
from deepspark_ops.evaluate.tasks.metrics_head import MainFigure
from deepspark_ops.file_stamp import Stamp, file_stamp
from deepspark_ops.frozen_model import FrozenModel
from deepspark_ops.run_index.outcome import outcome_of
from deepspark_ops.run_label.label import read_label
from deepspark_ops.run_label.names import TRAINING, default_name, work_of_stages
from deepspark_ops.run_paths import DatasetPaths, RunPaths
from deepspark_ops.run_view.chart_lines import is_share
from deepspark_ops.run_view.progress import RunProgress
from deepspark_ops.run_view.reading import RunReading
from deepspark_ops.run_view.series import RunSeries, net_outputs
from deepspark_ops.run_view.stage_status import NO_MESSAGE, StageStatus, ended_text, read_statuses
from deepspark_ops.run_view.thin_out import kept_points
from deepspark_ops.shards.manifest import split_digests
from deepspark_ops.stores.store_path import data_path
from deepspark_ops.train.setup.run_dataset import noted_digest

SUMMARY_VERSION: Final = 6
CURVE_POINTS: Final = 42
_ERROR_KEPT: Final = 300
"""Characters of an error's first line."""


_RUN: Final = RunPaths(Path())
_SOURCES: Final = tuple(map(str, (_RUN.events, _RUN.evaluation / METRICS_NAME, _RUN.stages, _RUN.label)))
"""Files and folders of a run that change with the summary. The config is written before the events, and the decision
before the end of a task, which changes the folder of the tasks."""


class RunSummary(FrozenModel):
    """A run in a list.

    Attributes:
        format_version: Version of this form.
        made_of: Stamps of the run's files at the time of the summary.
        name: Name by a person; empty for the default name.
        tags: Words by a person.
        archived: Whether lists hide the run.
        work: Work of the run, ``training`` or another; None before a stage tells.
        outcome: Outcome of the run for the model in production; None without an outcome.
        net: Name of the net; None before the training, as all fields from events.
        solver: File name of the solver.
        strategy: Strategy of the exchange.
        n_workers: Number of workers.
        tau: Option ``comm_period``.
        dataset: Name of the dataset's folder; None for the net's own sources.
        dataset_digest: Digest of the training split's manifest, ``sha256:<hex>``; None without a dataset.
        clock: Minibatches over all workers.
        max_iter: Clock at the end of the run.
        ending: Kind of end of the training; None before the end.
        error: First line of the last failed task's message; None without a failed task.
        loss: Mean of the workers' last training losses.
        curve: Loss over the clock, thinned out: a list of [clock, loss] as JSON. A list of 10,000 runs parses the text
            for the rows of a page only.
        accuracy: Accuracy of the evaluation, else the last accuracy of a test net; None before both.
        accuracy_of: Source of ``accuracy``.
        figure: Main figure of an evaluation of a task other than classification; None for other runs.
        n_samples: Number of samples behind the evaluation's accuracy or main figure; None without an evaluation.
        images_per_s: Rate of the whole training, after its end.
    """

    format_version: Literal[6] = SUMMARY_VERSION
    made_of: tuple[Stamp, ...] = ()
    name: str = ""
    tags: tuple[str, ...] = ()
    archived: bool = False
    work: str | None = None
    outcome: str | None = None
    net: str | None = None
    solver: str | None = None
    strategy: str | None = None
    n_workers: int | None = None
    tau: str | None = None
    dataset: str | None = None
    dataset_digest: str | None = None
    clock: int = 0
    max_iter: int | None = None
    ending: str | None = None
    error: str | None = None
    loss: float | None = None
    curve: str = "[]"
    accuracy: float | None = None
    accuracy_of: Literal["evaluation", "test net"] | None = None
    figure: MainFigure | None = None
    n_samples: int | None = None
    images_per_s: float | None = None

    @property
    def is_stopped(self) -> bool:
        """Return whether the training was stopped, and no task has another reason for its failure."""
        return self.ending == "stopped" and self.error in (None, ended_text("train"))

    @property
    def state(self) -> str | None:
        """Return the run's state by its folder: the training's end, ``failed`` after a failed task; None without."""
        return "failed" if self.error is not None and not self.is_stopped else self.ending

    def shown_name(self, *, work: str = TRAINING) -> str:
        """Return the run's name, else the default name; ``work`` is for a run whose stages do not tell."""
        return self.name or default_name(
            work=self.work or work,
            net=self.net,
            solver=self.solver,
            strategy=self.strategy,
            n_workers=self.n_workers,
            max_iter=self.max_iter,
        )


def stamps(run_dir: Path | str) -> tuple[Stamp, ...]:
    """Return the stamps of the summary's source files."""
    root = os.fspath(run_dir)
    return tuple([file_stamp(f"{root}/{path}") for path in _SOURCES])  # 40,000 in a list of 10,000 runs


def summarize(reading: RunReading, run_dir: Path) -> RunSummary:
    """Return the present summary of a run; damaged files count as missing.

    Raises:
        OSError: The events exist and cannot be read.
    """
    made_of = stamps(run_dir)  # taken before the files are read: later changes make the summary stale
    with reading.lock:
        reading.refresh()
        fields = {**_of_config(run_dir), **_of_events(reading.progress, reading.series)}
    fields |= {**_of_evaluation(run_dir), **_of_tasks(run_dir, has_trained=bool(fields["net"]))}
    fields |= read_label(run_dir).model_dump(exclude={"format_version"})
    return RunSummary(made_of=made_of, **{name: value for name, value in fields.items() if value is not None})


def read_config(run_dir: Path) -> Mapping[str, Any]:
    """Return the config of a run, of any version; empty if the file is missing."""
    return _json_fields(RunPaths(run_dir).config)


def _config_of_check(run_dir: Path) -> Mapping[str, Any]:
    """Return the config of a run's task check, for a run that failed before the training; without the dataset."""
    config = _json_fields(RunPaths(run_dir).stages / "check.json")
    return {name: config[name] for name in ("solver", "strategy", "comm_period") if name in config}


def _dataset_of_ingest(run_dir: Path) -> Mapping[str, Any]:
    """Return the dataset of a run's finished task ingest, for a run without a training."""
    status = read_statuses(run_dir).get("ingest")
    if status is None or status.status != "finished":
        return {}
    return {"dataset": _json_fields(RunPaths(run_dir).stages / "ingest.json").get("output")}


def _json_fields(path: Path) -> Mapping[str, Any]:
    with suppress(OSError, ValueError):
        content = json.loads(regular_bytes(path))
        if isinstance(content, dict):
            return content
    return {}


def _of_tasks(run_dir: Path, *, has_trained: bool) -> dict[str, Any]:
    """Return the fields from the notes of the run's tasks."""
    statuses, paths = read_statuses(run_dir), RunPaths(run_dir)
    has_trials = paths.trials.is_file()
    return {
        "error": _error_of(statuses.values()),
        "work": work_of_stages(frozenset(statuses), has_trials=has_trials, has_trained=has_trained),
        "outcome": outcome_of(_json_fields(paths.decision), statuses),
    }


def _error_of(statuses: Iterable[StageStatus]) -> str | None:
    failed = [status for status in statuses if status.status == "failed"]
    if not failed:
        return None
    message = max(failed, key=lambda status: status.time).message
    return next((line.strip()[:_ERROR_KEPT] for line in message.splitlines() if line.strip()), NO_MESSAGE)


def _of_config(run_dir: Path) -> dict[str, Any]:
    config = read_config(run_dir) or {**_config_of_check(run_dir), **_dataset_of_ingest(run_dir)}
    fields: dict[str, Any] = {
        "solver": Path(str(config["solver"])).name if config.get("solver") else None,
        "tau": str(config["comm_period"]) if "comm_period" in config else None,
        "strategy": str(config["strategy"]) if config.get("strategy") else None,
    }
    if config.get("dataset"):
        dataset = data_path(str(config["dataset"]))
        fields["dataset"] = dataset.name
        if dataset.parent.name == DatasetPaths(dataset).versions.name:  # an earlier version of a dataset
            fields["dataset"] = dataset.parent.parent.name
        with suppress(OSError, DataError):
            noted = noted_digest(RunPaths(run_dir))
            is_asked = noted is None and isinstance(dataset, Path)  # a page waits for no store
            fields["dataset_digest"] = split_digests(dataset).get("train") if is_asked else noted
    return fields


def _of_events(progress: RunProgress, series: RunSeries) -> dict[str, Any]:
    started, ended = progress.started, progress.ended or {}
    fields: dict[str, Any] = {
        "net": str(started["net"]) if started.get("net") else None,
        "n_workers": started.get("n_workers"),
        "clock": progress.clock,
        "max_iter": progress.max_iter,
        "ending": str(ended["status"]) if "status" in ended else None,
        "loss": _finite(progress.mean_loss()),
        "curve": json.dumps(loss_curve(series), separators=(",", ":")),
        "images_per_s": _finite(progress.mean_images_per_s()),
    }
    if started.get("strategy"):
        fields["strategy"] = str(started["strategy"])
    accuracy = test_accuracy(progress)
    return fields | ({"accuracy": accuracy, "accuracy_of": "test net"} if accuracy is not None else {})


def test_accuracy(progress: RunProgress) -> float | None:
    """Return the last accuracy of the first test net with an accuracy; None without an accuracy."""
    for _, event in sorted(progress.tests.items()):
        for name, value in net_outputs(event).items():
            if is_share(name):
                return _finite(value)
    return None


def loss_curve(series: RunSeries) -> tuple[tuple[float, float], ...]:
    """Return a line of few points: the mean loss of all workers, without values that are not finite."""
    if "loss" not in series.all_workers.values:
        return ()
    clock, _, loss = series.all_workers.line("loss")
    is_value = np.isfinite(loss)
    clock, loss = clock[is_value], loss[is_value]
    kept_indices = kept_points(clock, loss, CURVE_POINTS // 2 - 1)
    return tuple((float(x), float(f"{y:.6g}")) for x, y in zip(clock[kept_indices], loss[kept_indices], strict=True))


def _of_evaluation(run_dir: Path) -> dict[str, Any]:
    path = RunPaths(run_dir).evaluation / METRICS_NAME
    with suppress(OSError, DataError):
        metrics = read_metrics(path)
        classes = classes_of(metrics)
        if classes is None:
            return {"figure": metrics.main, "n_samples": metrics.n_samples, "accuracy": None, "accuracy_of": None}
        return {"accuracy": classes.top1, "n_samples": metrics.n_samples, "accuracy_of": "evaluation"}
    return {}


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
