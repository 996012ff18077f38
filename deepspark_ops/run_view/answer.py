"""Content of the page Training, as plain JSON values."""

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
from deepspark_ops.run_view.state import AirflowRun, RunState, TaskState

ANSWER_VERSION: Final = 1
WORKERS_SHOWN: Final = 200
NOTES_SHOWN: Final = 12
EVENTS_SHOWN: Final = 20
_EVENT_MARKS: Final = ("joined", "restarted", "started")
"""Marks in the list of events; other marks are in the list as snapshots, or among the warnings."""


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
    """Return the content of the page.

    Args:
        reading: Refreshed reading; the caller holds its lock.
        state: State of the run.
        statuses: Status files of the run's tasks.
        airflow: The DAG run, None for a run that Airflow does not know.
        now: Seconds since the epoch.
        run_dir: The run's folder, for the list of existing snapshot files; None lists no files.
        since: ``cursor`` of an earlier answer, to get only newer points; empty for all points.
        has_lines: Whether the answer has the charts' lines; thinning out a long run takes a moment.

    Returns:
        Times are seconds since the epoch; times of ``lines`` and ``marks`` are seconds since ``origin``. ``is_whole``:
        ``lines`` replace all drawn lines. ``points`` counts the points in ``lines``, ``points_of`` the points of the
        run. A number that is not finite is None.
    """
    progress = reading.progress
    origin = progress.first_time or now
    after_offset = reading.offset_of(since) if since else None
    lines = chart_lines(reading.series, origin, after_offset=after_offset) if has_lines else []
    fields = {
        "format_version": ANSWER_VERSION,
        "state": asdict(state),
        **_header(progress, now),
        "has_weights": bool(reading.weights),
        "minibatches_per_epoch": reading.series.minibatches_per_epoch(),
        "stages": _stages(statuses, airflow),
        "workers": [
            _worker(number, standing, progress.state_of(standing), now)
            for number, standing in sorted(progress.workers.items())[:WORKERS_SHOWN]
        ],
        "n_workers_seen": len(progress.workers),
        "marks": [{**asdict(mark), "time": round(mark.time - origin, 2)} for mark in progress.marks],
        "warnings": _warnings(progress, statuses),
        "events": _events(progress, run_dir),
        "last_snapshot": max(progress.snapshots.items())[1].weights if progress.snapshots else None,
        "spark_ui": _spark_ui(progress, state),
        "cursor": reading.token,
        "is_whole": after_offset is None,
        "points": sum(len(line["clock"]) for line in lines),
        "points_of": sum(line["points_of"] for line in lines),
        "charts": [asdict(chart) for chart in CHARTS],
        "lines": lines,
    }
    answer: dict[str, Any] = _finite(fields)
    return answer


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
            {
                "net": net,
                "clock": event.clock,
                "n_samples": event.data.get("n_samples") or None,
                "outputs": net_outputs(event),
            }
            for net, event in sorted(progress.tests.items())
        ],
        "origin": progress.first_time,
        "news": progress.last_time or None,
        "now": now,
        "seconds_gone": max(0.0, until - progress.started_time) if started else None,
        "seconds_left": progress.seconds_left() if progress.ended is None else None,
    }


def _rate(progress: RunProgress) -> float | None:
    """Return images per second: of the whole run after its end, else the present rate; None before the first report."""
    if progress.ended is not None:
        return progress.mean_images_per_s()
    return progress.images_per_s() if progress.has_trained else None


def _worker(number: int, worker: WorkerStanding, state: str, now: float) -> dict[str, Any]:
    names = ("loss", "learning_rate", "images_per_s", "staleness", "distance")
    return {
        "worker": number,
        "state": state,
        "clock": worker.clock,
        **{name: worker.number(name) if name in worker.report else None for name in names},
        "shares": worker.shares(),
        "comm_period": worker.exchange.get("comm_period"),
        "seen_s_ago": max(0.0, now - worker.last_event_time),
        "starts": worker.starts,
        "host": worker.host,
        "device": worker.device,
        "lost": worker.reason,
        "ending": worker.ending,
    }


def _stages(statuses: Mapping[str, StageStatus], airflow: AirflowRun | None) -> list[dict[str, Any]]:
    """Return the run's tasks in the order of their starts."""
    tasks = {} if airflow is None else dict(airflow.tasks)
    for name, status in statuses.items():
        tasks.setdefault(name, TaskState(status.status, status.began, task=status.task))
    stages = [
        {
            "stage": name,
            "task": task.task or name,
            "state": task.state,
            "began": task.began,
            "ended": task.ended,
            "text": statuses[name].text if name in statuses and task.state == "running" else "",
        }
        for name, task in tasks.items()
    ]
    return sorted(stages, key=lambda stage: (stage["began"] is None, stage["began"] or 0.0))


def _warnings(progress: RunProgress, statuses: Mapping[str, StageStatus]) -> list[dict[str, Any]]:
    """Return the last warnings of events and of the tasks' output, newest first."""
    of_events: list[dict[str, Any]] = [
        {"time": note.time, "clock": note.clock, "text": note.text} for note in progress.notes if note.is_warning
    ]
    # Warnings of workers and server are already among the events.
    of_tasks: list[dict[str, Any]] = [
        {"time": when, "clock": None, "text": text}
        for name, status in statuses.items()
        for when, text in status.warnings
        if name != "train" or "worker_lost" not in text
    ]
    return sorted([*of_events, *of_tasks], key=lambda warning: warning["time"], reverse=True)[:NOTES_SHOWN]


def _spark_ui(progress: RunProgress, state: RunState) -> str:
    """Return the address of Spark's web UI while the UI runs; empty for text that is no web address."""
    lives = state.name in ("starting", "running")
    return progress.spark_ui if lives and progress.spark_ui.startswith(("http://", "https://")) else ""


def _events(progress: RunProgress, run_dir: Path | None) -> list[dict[str, Any]]:
    """Return the events, newest first: snapshots with their files, notes, workers that joined."""
    events: list[dict[str, Any]] = [
        {"kind": "note", "time": note.time, "clock": note.clock, "text": note.text}
        for note in progress.notes
        if not note.is_warning
    ]
    listed = {(event["time"], event["text"]) for event in events}
    events += [
        {"kind": mark.kind, "time": mark.time, "clock": mark.clock, "text": mark.text}
        for mark in progress.marks
        if mark.kind in _EVENT_MARKS and (mark.time, mark.text) not in listed
    ]
    for snapshot in sorted(progress.snapshots.values(), key=lambda snapshot: snapshot.time)[-EVENTS_SHOWN:]:
        weights = snapshot.weights.rpartition("/")[2]
        files = [] if run_dir is None else snapshot_files(run_dir, weights)
        events.append(
            {
                "kind": "snapshot",
                "time": snapshot.time,
                "clock": snapshot.iteration,
                "text": f"snapshot {weights.partition('.caffemodel')[0]}",
                "seconds": snapshot.seconds,
                "files": [asdict(file) for file in files],
            }
        )
    return sorted(events, key=lambda event: event["time"], reverse=True)[:EVENTS_SHOWN]


def _finite(value: Any) -> Any:
    """Return ``value`` with None for each number that JSON cannot write; ``lines`` have no such numbers."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: part if key == "lines" else _finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return value
