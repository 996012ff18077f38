"""Everything that a page shows of a run's training, as plain JSON values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from deepspark_ops.run_view.chart_lines import CHARTS, chart_lines
from deepspark_ops.run_view.progress import RunProgress, WorkerStanding
from deepspark_ops.run_view.reading import RunReading
from deepspark_ops.run_view.run_files import snapshot_files
from deepspark_ops.run_view.series import net_outputs
from deepspark_ops.run_view.stage_status import StageStatus
from deepspark_ops.run_view.state import AirflowRun, RunState

ANSWER_VERSION: Final = 1
WORKERS_SHOWN: Final = 200
NOTES_SHOWN: Final = 12
EVENTS_SHOWN: Final = 20
_TOLD: Final = ("joined", "restarted", "started")
"""Marks that stand among the events; the others are there as snapshots, or among the warnings."""


def training_answer(
    reading: RunReading,
    state: RunState,
    *,
    statuses: Mapping[str, StageStatus],
    airflow: AirflowRun | None,
    now: float,
    run_dir: Path | None = None,
    since: str = "",
    has_lines: bool = True,
) -> dict[str, Any]:
    """Return what a page shows.

    Args:
        reading: Refreshed, with its lock held.
        state: What the run is doing.
        statuses: What its tasks noted.
        airflow: The DAG run, None for a run that Airflow does not know.
        now: Seconds since the epoch.
        run_dir: The run's folder, to say which files of its snapshots are there still; None names none.
        since: ``cursor`` of an earlier answer, to get only the points that are new since; empty for all.
        has_lines: Whether the charts' lines are wanted at all; thinning out a long run takes a moment.

    Returns:
        Times in seconds since the epoch, but for those of ``lines`` and ``marks``: since ``origin``. ``is_whole`` says
        that ``lines`` replace what was drawn before; ``points`` are in them, of ``points_of`` in the run. A number that
        is not finite is None.
    """
    progress = reading.progress
    origin = progress.first_time or now
    after = reading.offset_of(since) if since else None
    lines = chart_lines(reading.series, origin, after=after) if has_lines else []
    fields = {
        "format_version": ANSWER_VERSION,
        "state": asdict(state),
        **_header(progress, now),
        "minibatches_per_epoch": reading.series.minibatches_per_epoch(),
        "stages": _stages(statuses, airflow),
        "workers": [_worker(number, one, now) for number, one in sorted(progress.workers.items())[:WORKERS_SHOWN]],
        "n_workers_seen": len(progress.workers),
        "marks": [{**asdict(mark), "time": round(mark.time - origin, 2)} for mark in progress.marks],
        "warnings": _warnings(progress, statuses),
        "events": _events(progress, run_dir),
        "last_snapshot": max(progress.snapshots.items())[1].weights if progress.snapshots else None,
        "spark_ui": _spark_ui(progress, state),
        "cursor": reading.token,
        "is_whole": after is None,
        "points": sum(len(line["clock"]) for line in lines),
        "points_of": sum(line["points_of"] for line in lines),
        "charts": [asdict(chart) for chart in CHARTS],
        "lines": lines,
    }
    found: dict[str, Any] = _finite(fields)
    return found


def _header(progress: RunProgress, now: float) -> dict[str, Any]:
    started, max_iter = progress.started, progress.max_iter
    until = progress.last_time if progress.ended is not None else now
    return {
        "net": started.get("net"),
        "strategy": started.get("strategy"),
        "n_workers": started.get("n_workers"),
        "n_params": started.get("n_params"),
        "starts": progress.starts,
        "clock": progress.clock,
        "max_iter": max_iter,
        "share": min(1.0, progress.clock / max_iter) if max_iter else None,
        "images_per_s": _rate(progress),
        "steps_per_s": progress.steps_per_s(),
        "loss": progress.mean_loss(),
        "tests": [
            {"net": net, "clock": event.clock, "outputs": net_outputs(event)}
            for net, event in sorted(progress.tests.items())
        ],
        "origin": progress.first_time,
        "news": progress.last_time or None,
        "now": now,
        "seconds_gone": max(0.0, until - progress.started_time) if started else None,
        "seconds_left": progress.seconds_left() if progress.ended is None else None,
    }


def _rate(progress: RunProgress) -> float | None:
    """Return images per second: of the whole run once it has ended, else of now; None before the first report."""
    if progress.ended is not None:
        return progress.mean_images_per_s()
    return progress.images_per_s() if progress.has_trained else None


def _worker(number: int, worker: WorkerStanding, now: float) -> dict[str, Any]:
    names = ("loss", "learning_rate", "images_per_s", "staleness", "distance")
    return {
        "worker": number,
        "state": worker.state,
        "clock": worker.clock,
        **{name: worker.number(name) if name in worker.report else None for name in names},
        "shares": worker.shares(),
        "comm_period": worker.exchange.get("comm_period"),
        "seen_s_ago": max(0.0, now - worker.seen),
        "starts": worker.starts,
        "host": worker.host,
        "device": worker.device,
        "lost": worker.reason,
        "ending": worker.ending,
    }


def _stages(statuses: Mapping[str, StageStatus], airflow: AirflowRun | None) -> list[dict[str, Any]]:
    """Return the run's tasks in the order in which they began."""
    names = dict.fromkeys([*(airflow.tasks if airflow is not None else ()), *statuses])
    found = []
    for name in names:
        task = airflow.tasks.get(name) if airflow is not None else None
        status = statuses.get(name)
        began = task.began if task is not None else status.began if status is not None else None
        word = task.state if task is not None else status.status if status is not None else None
        ended = task.ended if task is not None else None
        text = status.text if status is not None and word == "running" else ""
        found.append({"stage": name, "state": word, "began": began, "ended": ended, "text": text})
    return sorted(found, key=lambda stage: (stage["began"] is None, stage["began"] or 0.0))


def _warnings(progress: RunProgress, statuses: Mapping[str, StageStatus]) -> list[dict[str, Any]]:
    """Return the last warnings of events and of the tasks' output, newest first."""
    of_events: list[dict[str, Any]] = [
        {"time": note.time, "clock": note.clock, "text": note.text} for note in progress.notes if note.is_warning
    ]
    # What workers and server say of themselves stands in the events already.
    of_tasks: list[dict[str, Any]] = [
        {"time": when, "clock": None, "text": text}
        for name, status in statuses.items()
        for when, text in status.warnings
        if name != "train" or "worker_lost" not in text
    ]
    return sorted([*of_events, *of_tasks], key=lambda one: one["time"], reverse=True)[:NOTES_SHOWN]


def _spark_ui(progress: RunProgress, state: RunState) -> str:
    """Return the address of Spark's own pages while they are there; whatever is no web address is none."""
    lives = state.name in ("starting", "running")
    return progress.spark_ui if lives and progress.spark_ui.startswith(("http://", "https://")) else ""


def _events(progress: RunProgress, run_dir: Path | None) -> list[dict[str, Any]]:
    """Return what happened, newest first: snapshots with their files, notes, workers that came."""
    found: list[dict[str, Any]] = [
        {"kind": "note", "time": note.time, "clock": note.clock, "text": note.text}
        for note in progress.notes
        if not note.is_warning
    ]
    known = {(event["time"], event["text"]) for event in found}
    found += [
        {"kind": mark.kind, "time": mark.time, "clock": mark.clock, "text": mark.text}
        for mark in progress.marks
        if mark.kind in _TOLD and (mark.time, mark.text) not in known
    ]
    newest = sorted(progress.snapshots.values(), key=lambda snapshot: snapshot.time)[-EVENTS_SHOWN:]
    found += [
        {"kind": "snapshot", "time": one.time, "clock": one.iteration, "text": _snapshot_name(one.weights)}
        | {"seconds": one.seconds, "weights": one.weights}
        for one in newest
    ]
    shown = sorted(found, key=lambda event: event["time"], reverse=True)[:EVENTS_SHOWN]
    for event in shown:
        if event["kind"] == "snapshot":
            files = snapshot_files(run_dir, Path(event.pop("weights")).name) if run_dir is not None else []
            event["files"] = [asdict(file) for file in files]
    return shown


def _snapshot_name(weights: str) -> str:
    return f"snapshot {weights.rpartition('/')[2].partition('.caffemodel')[0]}"


def _finite(value: Any) -> Any:
    """Return ``value`` with None for each number that JSON cannot write; ``lines`` have none."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: part if key == "lines" else _finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return value
