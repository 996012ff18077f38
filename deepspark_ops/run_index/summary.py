"""The few numbers of a run that a list shows, out of its config, its events and its evaluation."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from caffe_import.files.regular_file import regular_bytes
from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.metrics import METRICS_NAME, classes_of, read_metrics
from deepspark_ops.evaluate.tasks.metrics_head import MainFigure
from deepspark_ops.run_paths import DatasetPaths, RunPaths
from deepspark_ops.run_view.chart_lines import is_share
from deepspark_ops.run_view.progress import RunProgress
from deepspark_ops.run_view.reading import RunReading
from deepspark_ops.run_view.series import RunSeries, net_outputs
from deepspark_ops.run_view.thin_out import kept_points
from deepspark_ops.shards.manifest import split_digests
from deepspark_ops.train.setup.run_dataset import noted_digest

SUMMARY_VERSION: Final = 2
CURVE_POINTS: Final = 42
Stamp = tuple[int, int]
"""Size and change time (ns) of a file; ``(0, 0)`` for one that is not there."""


class RunSummary(BaseModel):
    """A run in a list.

    Attributes:
        format_version: Version of this form.
        made_of: Name of a file of the run -> its stamp when this was made.
        net: Name of the net; None before the training began, as everything else out of the events.
        solver: File name of the solver.
        strategy: Of the exchange.
        n_workers: Number of workers.
        tau: ``comm_period`` as it was asked for.
        dataset: Name of the dataset's folder; None for the net's own sources.
        dataset_digest: Of the training split's manifest, ``sha256:<hex>``; None if there is none.
        clock: Minibatches over all workers.
        max_iter: Clock that the run ends at.
        ending: How the training ended; None while it has not.
        loss: Mean of the workers' last training losses.
        curve: The loss over the clock, (clock, loss), thinned out.
        accuracy: Share of the evaluation's samples that are right, else a test net's last; None before both.
        accuracy_of: Which of the two.
        figure: What an evaluation of another task than classification is judged by; None for others.
        images_per_s: Of the whole training once it has ended.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: Literal[2] = SUMMARY_VERSION
    made_of: dict[str, Stamp]
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
    loss: float | None = None
    curve: tuple[tuple[float, float], ...] = ()
    accuracy: float | None = None
    accuracy_of: Literal["evaluation", "test net"] | None = None
    figure: MainFigure | None = None
    images_per_s: float | None = None


def stamps(run_dir: Path) -> dict[str, Stamp]:
    """Return the stamps of what a summary is made of."""
    paths = RunPaths(run_dir)
    files = {"config": paths.config, "events": paths.events, "metrics": paths.evaluation / METRICS_NAME}
    return {name: _stamp(path) for name, path in files.items()}


def summarize(reading: RunReading, run_dir: Path) -> RunSummary:
    """Return the summary of a run as it is now; what is damaged in its folder counts as missing.

    Raises:
        OSError: The events are there and cannot be read.
    """
    made_of = stamps(run_dir)  # before the files are read: what comes meanwhile makes it old
    with reading.lock:
        reading.refresh()
        fields = {**_of_config(run_dir), **_of_events(reading.progress, reading.series)}
    fields |= _of_evaluation(run_dir)
    return RunSummary(made_of=made_of, **{name: value for name, value in fields.items() if value is not None})


def _stamp(path: Path) -> Stamp:
    try:
        stat = path.stat()
    except OSError:
        return 0, 0
    return stat.st_size, stat.st_mtime_ns


def read_config(run_dir: Path) -> Mapping[str, Any]:
    """Return the config that a run was started with, whatever version wrote it; empty if it is not there."""
    with suppress(OSError, ValueError):
        found = json.loads(regular_bytes(RunPaths(run_dir).config))
        if isinstance(found, dict):
            return found
    return {}


def _of_config(run_dir: Path) -> dict[str, Any]:
    config = read_config(run_dir)
    fields: dict[str, Any] = {
        "solver": Path(str(config["solver"])).name if config.get("solver") else None,
        "tau": str(config["comm_period"]) if "comm_period" in config else None,
        "strategy": str(config["strategy"]) if config.get("strategy") else None,
    }
    if config.get("dataset"):
        dataset = Path(str(config["dataset"]))
        fields["dataset"] = dataset.name
        if dataset.parent.name == DatasetPaths(dataset).versions.name:  # of a dataset that has grown meanwhile
            fields["dataset"] = dataset.parent.parent.name
        with suppress(OSError, DataError):
            noted = noted_digest(RunPaths(run_dir))
            fields["dataset_digest"] = noted or split_digests(dataset).get("train")
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
        "curve": loss_curve(series),
        "images_per_s": _finite(progress.mean_images_per_s()),
    }
    if started.get("strategy"):
        fields["strategy"] = str(started["strategy"])
    accuracy = test_accuracy(progress)
    return fields | ({"accuracy": accuracy, "accuracy_of": "test net"} if accuracy is not None else {})


def test_accuracy(progress: RunProgress) -> float | None:
    """Return the last accuracy of the first test net that has one; None if none has."""
    for _, event in sorted(progress.tests.items()):
        for name, value in net_outputs(event).items():
            if is_share(name):
                return _finite(value)
    return None


def loss_curve(series: RunSeries) -> tuple[tuple[float, float], ...]:
    """Return a line of few points: the mean loss of all workers; what is not finite is left out."""
    if "loss" not in series.all_workers.values:
        return ()
    clock, _, loss = series.all_workers.line("loss")
    is_value = np.isfinite(loss)
    clock, loss = clock[is_value], loss[is_value]
    kept = kept_points(clock, loss, CURVE_POINTS // 2 - 1)
    return tuple((float(x), float(f"{y:.6g}")) for x, y in zip(clock[kept], loss[kept], strict=True))


def _of_evaluation(run_dir: Path) -> dict[str, Any]:
    path = RunPaths(run_dir).evaluation / METRICS_NAME
    with suppress(OSError, DataError):
        metrics = read_metrics(path)
        classes = classes_of(metrics)
        if classes is None:
            return {"figure": metrics.main, "accuracy": None, "accuracy_of": None}
        return {"accuracy": classes.top1, "accuracy_of": "evaluation"}
    return {}


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
