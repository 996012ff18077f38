"""Report section of slices: a table for each property, the worst values first."""

from __future__ import annotations

from collections.abc import Sequence

from deepspark_ops.evaluate.charts import grouped
from deepspark_ops.evaluate.task_pages.parts import Section, Table
from deepspark_ops.evaluate.tasks.metrics_head import MetricsReport, SliceReport

MAX_ROWS = 100
"""Values in a table; ``metrics.json`` has all."""


def slice_sections(metrics: MetricsReport) -> Sequence[Section]:
    """Return a section for each property and each result of the net; empty without slices."""
    return [
        _section(column, [report for report in result.slices if report.column == column], of)
        for at, result in enumerate(metrics.results())
        for of in (f", {result.scored.score_blob}" if at else "",)
        for column in dict.fromkeys(report.column for report in result.slices)
    ]


def _section(column: str, slices: Sequence[SliceReport], of: str) -> Section:
    sign = 1 if slices[0].main.higher_is_better else -1
    order = sorted(slices, key=lambda report: (sign * report.main.value, report.value))
    names = list(dict.fromkeys((row.name, row.label) for report in slices for row in report.rows))
    rows = []
    for report in order[:MAX_ROWS]:
        texts = {row.name: row.text() for row in report.rows}
        rows.append((report.value, *(texts.get(name, "\u2013") for name, _ in names), grouped(report.n_samples)))
    left_out = f", {MAX_ROWS} of {grouped(len(slices))}" if len(slices) > MAX_ROWS else ""
    lead = f"The figures of the samples with each {column}, the worst first{left_out}."
    return Section(
        f"By {column}{of}", lead, table=Table((column.capitalize(), *(label for _, label in names), "Samples"), rows)
    )
