"""The report of stage plan as tables, for a terminal and for a log."""

from __future__ import annotations

from itertools import groupby

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from deepspark_ops.planning.plan_report import PlanReport, Row

_SOURCES = {"given": "as given", "run": "as the run measured", "estimate": "an estimate by operations"}


def plan_view(report: PlanReport) -> RenderableType:
    """Return tables of predictions, advice and assumptions."""
    parts: list[RenderableType] = [_title(report), _predictions(report), _saturation(report), _choices(report)]
    if report.accuracy:
        parts.append(Text("Accuracy at the same clock, of small nets (docs/evidence/strategies.md)"))
        for loss, rows in groupby(report.accuracy, lambda row: row.text.partition(" workers")[2]):
            counts = ", ".join(f"{row.workers:,}" for row in rows)
            parts.append(Text(f"  {counts} workers{loss}", style="dim"))
    parts += [Text.from_markup(f"[yellow]note:[/yellow] {escape(note)}") for note in report.notes]
    return Group(*parts)


def _title(report: PlanReport) -> Text:
    text = Text.from_markup(f"\n[bold]{escape(report.net)}[/bold], {report.strategy}")
    text.append(
        f"\n  {report.n_params:,} parameters, minibatches of {report.images_per_step:,} in {report.step_ms:.4g} ms"
        f" ({_SOURCES[report.step_source]})",
        style="dim",
    )
    if report.epoch_images:
        text.append(f", epochs of {report.epoch_images:,}", style="dim")
    return text


def _predictions(report: PlanReport) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="Options as given", title_justify="left")
    for name in ("workers", "tau", "images/s", "efficiency", "staleness", "p95", "server load", "exchange", "epoch"):
        table.add_column(name, justify="right")
    for row in report.rows:
        table.add_row(
            _workers(row),
            row.tau,
            f"{row.images_per_s:,.0f}",
            f"{row.efficiency:.1%}",
            f"{row.staleness:,.1f}",
            f"{row.staleness_p95:,.0f}",
            _load(row),
            f"{row.exchange_ms:,.2f} ms",
            duration(row.epoch_s),
        )
    return table


def _saturation(report: PlanReport) -> Text:
    last = report.rows[-1]
    return Text(
        f"The center saturates at about {report.saturation_workers:,} workers with tau {last.tau}, key ranges"
        f" {last.n_servers}, {last.wire_dtype}; more of them only queue.\n"
    )


def _choices(report: PlanReport) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="What to choose", title_justify="left")
    for name in ("workers", "tau", "key ranges"):
        table.add_column(name, justify="right")
    table.add_column("wire dtype")
    table.add_column("images/s", justify="right")
    table.add_column("server load", justify="right")
    table.add_column("why", overflow="fold")
    for advice in report.advice:
        row = advice.row
        table.add_row(
            _workers(row),
            row.tau,
            str(row.n_servers),
            row.wire_dtype,
            f"{row.images_per_s:,.0f}",
            _load(row),
            escape(advice.reason),
        )
    return table


def _workers(row: Row) -> str:
    return f"{row.workers:,}{' *' if row.is_extrapolated else ''}"


def _load(row: Row) -> str:
    colour = "red" if row.server_load > 0.95 else "yellow" if row.server_load > 0.7 else "green"
    return f"[{colour}]{row.server_load:.1%}[/]"


def duration(seconds: float | None) -> str:
    """Return a time in a readable unit.

    Example:
        >>> duration(0.025), duration(95.0), duration(7300.0), duration(None)
        ('25 ms', '1 min 35 s', '2 h 02 min', '')
    """
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{1e3 * seconds:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    if seconds < 3600:
        return f"{round(seconds) // 60} min {round(seconds) % 60:02d} s"
    return f"{round(seconds / 60) // 60} h {round(seconds / 60) % 60:02d} min"
