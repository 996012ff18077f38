"""The lines of a run's charts as plain lists: a whole run, thinned out to screen resolution, or only new points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from deepspark_ops.run_view.reading import RunReading
from deepspark_ops.run_view.series import SECONDS, Columns, Floats, RunSeries
from deepspark_ops.run_view.thin_out import kept_points, stretch_means

POINTS_PER_CHART: Final = 6_000
MAX_STRETCHES: Final = 400
"""A chart is about 500 pixels wide; each stretch keeps two values."""
MIN_STRETCHES: Final = 10
STACKED_STRETCHES: Final = 160
"""Bars of a stacked chart; narrower bars are a blur."""
_SHARE_NAMES: Final = {"compute_s": "computing", "data_s": "waiting for data", "exchange_s": "exchanging"}


@dataclass(frozen=True)
class Chart:
    """One chart.

    Attributes:
        name: Name of the chart in its lines.
        title: Title on the page, with the unit.
        unit: ``share`` (of 1), or empty for a plain number.
        is_first: Whether the page draws the chart at once; other charts are drawn when the user opens them.
        is_stacked: Whether the lines are parts of a sum.
    """

    name: str
    title: str
    unit: Literal["", "share"] = ""
    is_first: bool = True
    is_stacked: bool = False


CHARTS: Final = (
    Chart("loss", "Training loss"),
    Chart("test_accuracy", "Test accuracy", "share"),
    Chart("images_per_s", "Images per second"),
    Chart("time", "Where the workers' time goes", "share", is_stacked=True),
    Chart("test_loss", "Test loss and other outputs", is_first=False),
    Chart("learning_rate", "Learning rate", is_first=False),
    Chart("staleness", "Staleness: exchanges by others since a worker's pull", is_first=False),
    Chart("distance", "Distance of a worker from the center", is_first=False),
    Chart("lost_updates", "Lost updates, share of what was pushed", is_first=False),
    Chart("megabytes_per_s", "Megabytes per second to and from the center", is_first=False),
    Chart("memory", "Memory of a worker's process, MiB", is_first=False),
    Chart("cpu", "Busy processors of a host", "share", is_first=False),
    Chart("host_memory", "Memory in use of a host", "share", is_first=False),
    Chart("gpu", "Busy GPUs of a host, mean", "share", is_first=False),
    Chart("gpu_memory", "GPU memory in use of a host, mean", "share", is_first=False),
    Chart("network", "Network of a host, megabytes per second", is_first=False),
    Chart("disk", "Disks of a host, megabytes per second", is_first=False),
)


_HOST_CHARTS: Final = (
    ("cpu", "cpu", 1.0),
    ("host_memory", "memory", 1.0),
    ("gpu", "gpu", 1.0),
    ("gpu_memory", "gpu_memory", 1.0),
    ("network", "network_bytes_per_s", 1e-6),
    ("disk", "disk_bytes_per_s", 1e-6),
)
"""Chart, column and factor of a host's lines."""
_STACKED: Final = frozenset(chart.name for chart in CHARTS if chart.is_stacked)
_COMPARED: Final = (
    "loss", "test_accuracy", "images_per_s", "test_loss", "learning_rate", "staleness", "lost_updates",
    "megabytes_per_s",
)  # fmt: skip
COMPARED_CHARTS: Final = tuple(chart for chart in CHARTS if chart.name in _COMPARED)


@dataclass(frozen=True)
class _Line:
    chart: str
    name: str
    kind: Literal["worker", "whole", "test", "server", "host"]
    columns: Columns
    column: str
    factor: float = 1.0


def is_share(output: str) -> bool:
    """Return whether a test net's output is a share of 1, by its name: Caffe's nets name it ``accuracy``."""
    return "acc" in output.lower()


def chart_lines(series: RunSeries, origin: float, *, after_offset: int | None = None) -> list[dict[str, Any]]:
    """Return the lines of all charts.

    Args:
        series: Series of the run.
        origin: Time of second 0.
        after_offset: None for the whole run, thinned out if a line has more points than a screen shows; else an offset
            in the run's events, for every point after the offset.

    Returns:
        The lines, each with ``chart``, ``name``, ``kind``, the lists ``clock``, ``time``, ``value`` (None: a gap), and
        ``points_of``, the number of points before thinning out.
    """
    present_lines = [line for line in _lines(series) if line.column in line.columns.values]
    n_lines = {chart.name: sum(line.chart == chart.name for line in present_lines) for chart in CHARTS}
    drawn_lines: list[dict[str, Any]] = []
    for line in present_lines:
        clock, time, value = line.columns.line(line.column, after_offset=-1 if after_offset is None else after_offset)
        n_points = len(clock)
        if after_offset is None and line.chart in _STACKED:
            clock, time, value = stretch_means(clock, time, value, STACKED_STRETCHES)
        elif after_offset is None:
            stretches = min(MAX_STRETCHES, max(MIN_STRETCHES, POINTS_PER_CHART // 2 // n_lines[line.chart]))
            kept_indices = kept_points(clock, value, stretches)
            clock, time, value = clock[kept_indices], time[kept_indices], value[kept_indices]
        if len(clock):
            numbers = {"clock": clock.astype(np.int64).tolist(), "time": np.round(time - origin, 2).tolist()}
            values = _plain(value * line.factor)
            of = {"chart": line.chart, "name": line.name, "kind": line.kind, "points_of": n_points}
            drawn_lines.append({**of, **numbers, "value": values})
    return drawn_lines


def compared_lines(reading: RunReading, label: str, number: int) -> tuple[list[dict[str, Any]], float]:
    """Return a run's lines for a chart with several runs, a colour per run.

    Args:
        reading: Refreshed reading; the caller holds its lock.
        label: Name of the run.
        number: Index of the run in the comparison, from 0; selects the colour.

    Returns:
        The lines of ``chart_lines`` for all workers together, with ``run``; the duration of the run in seconds.
    """
    progress = reading.progress
    origin = progress.first_time or 0.0
    is_single_worker = len(reading.series.workers) == 1
    compared = [
        line
        for line in chart_lines(reading.series, origin)
        if line["chart"] in _COMPARED
        and (line["kind"] != "worker" or is_single_worker)
        and (line["chart"] != "staleness" or line["kind"] == "server")
    ]
    n_lines = Counter(line["chart"] for line in compared)
    lines = [
        {
            **line,
            "name": label if n_lines[line["chart"]] == 1 else f"{label}: {line['name']}",
            # The page can smooth lines of kind worker.
            "kind": "worker" if line["chart"] in ("loss", "images_per_s") else line["kind"],
            "run": number,
        }
        for line in compared
    ]
    return lines, max(0.0, progress.last_time - origin) if origin else 0.0


def _lines(series: RunSeries) -> Iterator[_Line]:
    for quantity in ("loss", "images_per_s", "staleness", "distance"):
        for worker, columns in sorted(series.workers.items()):
            yield _Line(quantity, f"worker {worker}", "worker", columns, quantity)
    for worker, columns in sorted(series.workers.items()):
        yield _Line("memory", f"worker {worker}", "worker", columns, "memory_bytes", 2.0**-20)
    if len(series.workers) > 1:
        yield _Line("loss", "mean of all", "whole", series.all_workers, "loss")
        yield _Line("images_per_s", "sum of all", "whole", series.all_workers, "images_per_s")
    yield _Line("learning_rate", "learning rate", "whole", series.all_workers, "learning_rate")
    for name in SECONDS:
        yield _Line("time", _SHARE_NAMES[name], "whole", series.all_workers, name)
    for net, columns in sorted(series.tests.items()):
        for output in columns.values:
            name = output + (f" (test net {net})" if net else "")
            yield _Line("test_accuracy" if is_share(output) else "test_loss", name, "test", columns, output)
    yield _Line("staleness", "all workers", "server", series.server, "staleness")
    yield _Line("lost_updates", "lost updates", "server", series.server, "lost_updates")
    for host, columns in sorted(series.hosts.items()):
        for chart, column, factor in _HOST_CHARTS:
            yield _Line(chart, host, "host", columns, column, factor)
    yield _Line("megabytes_per_s", "all workers", "server", series.server, "bytes_per_s", 1e-6)


def _plain(values: Floats) -> list[float | None]:
    """Return six digits of each value; None for a value that is not finite."""
    is_value = np.isfinite(values)
    scale = 10.0 ** (5 - np.floor(np.log10(np.maximum(np.abs(np.where(is_value, values, 0.0)), 1e-30))))
    rounded = (np.round(np.where(is_value, values, 0.0) * scale) / scale).tolist()
    return [value if is_finite else None for value, is_finite in zip(rounded, is_value.tolist(), strict=True)]
