"""Lines of several runs on one chart per quantity, with a colour per run, as on the page Training."""

from __future__ import annotations

from typing import Any, Final

from deepspark_ops.run_view.chart_lines import CHARTS, chart_lines
from deepspark_ops.run_view.reading import RunReading

_QUANTITIES: Final = (
    "loss", "test_accuracy", "images_per_s", "test_loss", "learning_rate", "staleness", "lost_updates",
    "megabytes_per_s",
)  # fmt: skip
COMPARED_CHARTS: Final = tuple(chart for chart in CHARTS if chart.name in _QUANTITIES)


def compared_lines(reading: RunReading, label: str, number: int) -> tuple[list[dict[str, Any]], float]:
    """Return a run's lines for a comparison.

    Args:
        reading: Refreshed reading; the caller holds its lock.
        label: Name of the run.
        number: Index of the run in the comparison, from 0; selects the colour.

    Returns:
        The lines of ``chart_lines`` for all workers together, with ``run``; the duration of the run in seconds.
    """
    progress = reading.progress
    origin = progress.first_time or 0.0
    run_lines = chart_lines(reading.series, origin)
    is_single_worker = len(reading.series.workers) == 1
    compared = [
        line for line in run_lines if line["chart"] in _QUANTITIES and (line["kind"] != "worker" or is_single_worker)
    ]
    compared = [line for line in compared if line["chart"] != "staleness" or line["kind"] == "server"]
    lines = [{**line, "name": _name(line, compared, label), "kind": _kind(line), "run": number} for line in compared]
    return lines, max(0.0, progress.last_time - origin) if origin else 0.0


def _name(line: dict[str, Any], lines: list[dict[str, Any]], label: str) -> str:
    n_of_chart = sum(other["chart"] == line["chart"] for other in lines)
    return label if n_of_chart == 1 else f"{label}: {line['name']}"


def _kind(line: dict[str, Any]) -> str:
    return (
        "worker" if line["chart"] in ("loss", "images_per_s") else str(line["kind"])
    )  # the page can smooth these kinds
