"""The report of stage simulate as tables, for a terminal."""

from __future__ import annotations

from rich import box
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from deepspark_ops.planning.plan_view import duration
from deepspark_ops.simulation.advice import value_text
from deepspark_ops.simulation.report import SINGLE_RUN, Group, SimulationReport
from deepspark_ops.sizes import share_text
from deepspark_ops.trials.page import bytes_text


def simulation_view(report: SimulationReport) -> RenderableType:
    """Return the table of all groups, the advice, and the assumptions."""
    parts: list[RenderableType] = [_title(report), _table(report)]
    parts += [
        Text.from_markup(f"[bold]{escape(advice.text)}[/bold]: {escape(advice.reason)}") for advice in report.advice
    ]
    parts += [Text.from_markup(f"[yellow]note:[/yellow] {escape(note)}") for note in report.notes]
    return Lines(*parts)


def group_line(report: SimulationReport, group: Group) -> str:
    """Return a group's line of the log, e.g. ``easgd, 4 workers, tau 3: accuracy 97.50 %, 30 s``."""
    strategy, workers, tau, value, of_seeds, seconds, reached, speedup, *_ = _cells(report, group)
    value = Text.from_markup(value).plain
    spread = f" ({of_seeds})" if of_seeds else ""
    target = f", {reached} to {value_text(report, report.target)}" if group.time_to_target is not None else ""
    faster = f", {speedup} times as fast as one worker" if group.speedup is not None and group.workers > 1 else ""
    label = strategy if group.workers == 1 else f"{strategy}, {workers} workers, tau {tau}"
    return f"{label}: {report.figure} {value}{spread}, {seconds} of virtual time{target}{faster}"


def _title(report: SimulationReport) -> Text:
    text = Text.from_markup(f"\n[bold]{escape(report.net)}[/bold], virtual cluster")
    how = "" if report.step_source == "given" else ", an estimate"
    slow = f", {100 * report.stragglers:.4g}% of the workers {report.straggler_factor:g} times slower"
    text.append(
        f"\n  {report.n_params:,} parameters, minibatches of {report.step_ms:.4g} ms{how}, {report.network}"
        f"{slow if report.stragglers else ''}{f', {report.deaths} deaths a run' if report.deaths else ''}",
        style="dim",
    )
    return text


def _table(report: SimulationReport) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("strategy")
    target = f"to {value_text(report, report.target)}" if report.target is not None else "to target"
    names = (
        "workers",
        "tau",
        report.figure,
        "over seeds",
        "virtual time",
        target,
        "times faster",
        "staleness",
        "center",
        "bytes",
    )
    for name in names:
        table.add_column(escape(name), justify="right")
    for group in report.groups:
        table.add_row(*_cells(report, group))
    return table


def _cells(report: SimulationReport, group: Group) -> list[str]:
    rows = group.rows
    n_failed = sum(row.failure is not None for row in rows)
    spread = ""
    if len(rows) > 1 and group.lowest is not None:
        spread = f"{value_text(report, group.lowest)} to {value_text(report, group.highest)}"
    accuracy = value_text(report, group.accuracy) or "[red]failed[/red]"
    return [
        "one worker" if group.strategy == SINGLE_RUN else group.strategy,
        str(group.workers),
        group.tau,
        accuracy,
        spread + (f" ({n_failed} failed)" if n_failed and group.accuracy is not None else ""),
        duration(group.virtual_s),
        duration(group.time_to_target) or "-",
        f"{group.speedup:.2f}" if group.speedup is not None else "-",
        f"{group.staleness:.1f}",
        share_text(group.center_load, 0),
        bytes_text(group.bytes),
    ]
