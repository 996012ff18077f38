"""The scores of a run and of the model in production, for the run's page. No framework."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.metrics import METRICS_NAME, classes_of, read_metrics
from deepspark_ops.evaluate.tasks.metrics_head import MetricsReport
from deepspark_ops.operators.tasks.run_plan import Decided
from deepspark_ops.registry.candidate import PRODUCTION_EVALUATION
from deepspark_ops.run_paths import RunPaths


def evaluation_of(run_dir: Path) -> dict[str, Any] | None:
    """Return a run's evaluation for its page: accuracy or main figure, and the number of samples; None before it."""
    metrics = _metrics(RunPaths(run_dir).evaluation / METRICS_NAME)
    return None if metrics is None else {**_judged(metrics), "n_samples": metrics.n_samples}


def champion_of(run_dir: Path, decided: Decided) -> dict[str, Any] | None:
    """Return the scores of the model in production, for the pages of a run.

    Args:
        run_dir: The run's folder.
        decided: What its task check decided.

    Returns:
        ``version`` of ``model``, ``accuracy`` (top 1, share of 1; None of another task than classification, which has
        ``figure`` instead, what it is judged by), ``loss``, and ``is_on_these``: whether it was scored on this run's
        test samples, as task evaluate_production does; before that its own figures stand in. None where the run is not
        compared with production, or that has no figures.
    """
    if decided.production is None:
        return None
    bundle = decided.production.parent
    for folder, is_on_these in ((run_dir / PRODUCTION_EVALUATION, True), (bundle, False)):
        metrics = _metrics(folder / METRICS_NAME)
        if metrics is not None:
            return {
                "version": bundle.name,
                "model": decided.model,
                **_judged(metrics),
                "loss": metrics.loss,
                "is_on_these": is_on_these,
            }
    return None


def _judged(metrics: MetricsReport) -> dict[str, Any]:
    """Return the accuracy (top 1, share of 1), or for a task without classes the main figure; the other is None."""
    classes = classes_of(metrics)
    return {
        "accuracy": classes.top1 if classes else None,
        "figure": None if classes else metrics.main.model_dump(mode="json"),
    }


def _metrics(path: Path) -> MetricsReport | None:
    try:
        changed = path.stat().st_mtime_ns
    except OSError:
        return None
    return _read(path, changed)


@lru_cache(maxsize=64)
def _read(path: Path, changed: int) -> MetricsReport | None:
    """Read a file once per ``changed``, the time of its last write."""
    try:
        return read_metrics(path)
    except (DataError, OSError):
        return None
