"""Facts of a run as text, for notices and cards."""

from __future__ import annotations

from pathlib import Path

from deepspark_ops.run_index.index_file import read_index
from deepspark_ops.run_index.summary import RunSummary, summarize
from deepspark_ops.run_view.reading import RunReading
from deepspark_ops.sizes import share_text


def run_name(run_dir: Path) -> str:
    """Return a run's name in lists.

    Raises:
        OSError: The events exist and cannot be read.
    """
    return _summary(run_dir).shown_name()


def run_text(run_dir: Path) -> str:
    """Return a run's name, state, verdict, folder and main figures as lines.

    Raises:
        OSError: The events exist and cannot be read.
    """
    summary = _summary(run_dir)
    figures = {name: text for name, text in {**run_figures(summary), **_evaluation(summary)}.items() if text}
    lines = [f"{summary.shown_name()} ({run_state(summary)})", str(run_dir)]
    return "\n".join([*lines, *(f"{name}: {text}" for name, text in figures.items())])


def _summary(run_dir: Path) -> RunSummary:
    return read_index(run_dir) or summarize(RunReading(run_dir), run_dir)


def run_state(summary: RunSummary) -> str:
    """Return the run's state and the verdict about its model; ``running`` without an end."""
    state = summary.state or "running"
    return f"{state}, {summary.outcome}" if summary.outcome else state


def run_figures(summary: RunSummary) -> dict[str, str | None]:
    """Return name -> text of the training's figures; None for an unknown figure."""
    clock, of_all = f"{summary.clock:,}", "" if summary.max_iter is None else f" of {summary.max_iter:,}"
    return {
        "minibatches": clock + of_all,
        "loss": None if summary.loss is None else f"{summary.loss:.4g}",
        "images/s": None if summary.images_per_s is None else f"{summary.images_per_s:,.0f}",
        "error": summary.error,
    }


def _evaluation(summary: RunSummary) -> dict[str, str]:
    if summary.figure is not None:
        return {summary.figure.label: summary.figure.text()}
    if summary.accuracy is None:
        return {}
    return {f"accuracy ({summary.accuracy_of})": share_text(summary.accuracy)}
