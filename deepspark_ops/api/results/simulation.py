"""A simulation as an object."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from deepspark_ops.api.results.card import Card, CardTable, number_text
from deepspark_ops.api.results.frames import load_pandas, load_plotly
from deepspark_ops.api.results.result_folder import LocalFolder, read_content
from deepspark_ops.simulation.report import SimulationReport
from deepspark_ops.simulation.simulate import PAGE_FILE, REPORT_FILE

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


class Simulation(LocalFolder):
    """Trainings by virtual workers: accuracy against a cluster's virtual time."""

    kind: ClassVar[str] = f"simulation ({REPORT_FILE})"
    written_by: ClassVar[str] = "ds.simulate or deepspark simulate"
    _marks: ClassVar[tuple[str, ...]] = (REPORT_FILE,)

    @property
    def report(self) -> SimulationReport:
        """All numbers of ``simulation.json``.

        Raises:
            ConfigError: The file is damaged.
        """
        return read_content(self.folder / REPORT_FILE, SimulationReport, remedy="simulate again")

    @property
    def frame(self) -> pd.DataFrame:
        """A row per run: strategy, workers, seed, accuracy, virtual seconds, bytes, staleness."""
        pandas = load_pandas("simulation.frame")
        return pandas.DataFrame([row.model_dump(exclude={"curve", "digest"}) for row in self.report.rows])

    @property
    def page(self) -> Path:
        """The page with all curves, usable without a network."""
        return self.folder / PAGE_FILE

    def plot(self) -> go.Figure:
        """Return what was tested over the virtual time, a line per run."""
        graph_objects, _ = load_plotly("simulation.plot()")
        report = self.report
        figure = graph_objects.Figure()
        for row in report.rows:
            name = f"{row.strategy}, {row.workers} workers, seed {row.seed}"
            x, y = [point.virtual_s for point in row.curve], [point.value for point in row.curve]
            figure.add_trace(graph_objects.Scatter(x=x, y=y, name=name, mode="lines"))
        figure.update_layout(xaxis_title="virtual seconds", yaxis_title=report.figure)
        return figure

    def _card(self) -> Card:
        report = self.report
        columns = ["strategy", "workers", report.figure, "virtual seconds", "to the target", "speedup"]
        rows = [
            [
                group.strategy,
                group.workers,
                *map(number_text, (group.accuracy, group.virtual_s, group.time_to_target, group.speedup)),
            ]
            for group in report.groups
        ]
        return Card(
            f"Simulation: {report.net}",
            str(self.folder),
            note=report.network,
            table=CardTable(columns, rows),
            warnings=[*(advice.text for advice in report.advice), *report.notes],
        )
