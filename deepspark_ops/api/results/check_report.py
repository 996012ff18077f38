"""The report of a check as an object."""

from __future__ import annotations

from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console

from deepspark_ops.api.results.card import Card, CardTable, HasCard

if TYPE_CHECKING:
    from deepspark_ops.preflight.report import PreflightReport


@dataclass(frozen=True, repr=False)
class CheckReport(HasCard):
    """The result of ``ds.check``.

    Attributes:
        report: All of it: nets with their layers, data, work, problems.
    """

    report: PreflightReport

    def __repr__(self) -> str:
        """Return the solver's file and the numbers of findings; the whole report would fill pages."""
        counts = f"{len(self.errors)} errors, {len(self.warnings)} warnings"
        return f"CheckReport({str(self.report.solver)!r}: {counts})"

    @property
    def is_ok(self) -> bool:
        """Whether training can work."""
        return not self.errors

    @property
    def errors(self) -> tuple[str, ...]:
        """Findings that prevent a training."""
        return self.report.errors

    @property
    def warnings(self) -> tuple[str, ...]:
        """Surprising findings."""
        return tuple(problem.finding for problem in self.report.problems if problem.severity == "warning")

    def __str__(self) -> str:
        """Return the tables of the command."""
        from deepspark_ops.preflight.table import LOG_WIDTH, report_view

        text = StringIO()
        Console(file=text, width=LOG_WIDTH).print(report_view(self.report), highlight=False)
        return text.getvalue() + "".join(f"error: {finding}\n" for finding in self.errors)

    def _card(self) -> Card:
        report = self.report
        work, train = report.work, next((net for net in report.nets if net.phase == "TRAIN"), None)
        net = train or next(iter(report.nets), None)
        rows: dict[str, object] = {}
        if net is not None:
            rows["parameters"] = f"{net.n_params:,}"
            rows["forward pass"] = f"{net.flops / 1e6:,.1f} million operations for a batch of {net.batch_size}"
        if work is not None:
            epochs = "" if work.epochs is None else f", {work.epochs:.3g} epochs"
            rows["training"] = f"{work.solver_type}, {work.max_iter:,} minibatches by {work.n_workers} workers{epochs}"
        rows["result"] = "; ".join(result.text for result in report.results) or None
        layers = [
            [
                layer.name,
                layer.type,
                _shapes(layer.top_shapes),
                f"{layer.n_params:,}",
            ]
            for layer in (net.layers if net is not None else ())
        ]
        return Card(
            f"Check: {net.name if net is not None else 'no net could be built'}",
            report.solver,
            note="ready to train" if self.is_ok else f"{len(self.errors)} errors",
            rows=rows,
            table=CardTable(["layer", "type", "shapes", "parameters"], layers) if layers else None,
            warnings=[*(f"error: {finding}" for finding in self.errors), *self.warnings],
        )


def _shapes(shapes: tuple[tuple[int, ...], ...]) -> str:
    return " ".join("x".join(map(str, shape)) for shape in shapes)
