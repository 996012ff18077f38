"""The checks of ``deepspark doctor`` as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from deepspark_ops.doctor.check import Check


def doctor_view(checks: Sequence[Check]) -> RenderableType:
    """Return a row per check, with the remedy below the finding."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    table.add_column("check", no_wrap=True)
    table.add_column("found, and what to do", overflow="fold")
    for check in checks:
        remedy = f"\n[bold]-> {escape(check.remedy)}[/bold]" if check.remedy else ""
        table.add_row(_state(check), escape(check.name), escape(check.detail) + remedy)
    return table


def summary(checks: Sequence[Check]) -> str:
    """Return the numbers of checks, failures and warnings in a line.

    Example:
        >>> summary([Check("a", True, "x"), Check("b", True, "x", "y"), Check("c", False, "x", "y")])
        'doctor: 3 checks, 1 failed, 1 warning'
    """
    n_failed = sum(not check.ok for check in checks)
    n_warnings = sum(check.is_warning for check in checks)
    warnings = f"{n_warnings} warning{'' if n_warnings == 1 else 's'}"
    return f"doctor: {len(checks)} checks, {n_failed} failed, {warnings}"


def _state(check: Check) -> str:
    if not check.ok:
        return "[red]FAIL[/red]"
    return "[yellow]warn[/yellow]" if check.is_warning else "[green]ok[/green]"
