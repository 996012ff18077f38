"""A comparison of trainings as an object."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from deepspark_ops.api.results.card import Card, CardTable, Points, number_text
from deepspark_ops.api.results.frames import load_pandas, load_plotly
from deepspark_ops.api.results.result_folder import LocalFolder, read_content
from deepspark_ops.api.results.run import Run
from deepspark_ops.errors import ConfigError
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.trials.plan import read_plan
from deepspark_ops.trials.table import TABLE_NAME, Table, read_courses

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


class Comparison(LocalFolder):
    """Trainings of a net in several ways, a run per training."""

    kind: ClassVar[str] = f"comparison (evaluation/{TABLE_NAME})"
    written_by: ClassVar[str] = "ds.compare, deepspark compare or the DAG deepspark_compare"
    _marks: ClassVar[tuple[str, ...]] = (str(RunPaths(Path()).evaluation / TABLE_NAME),)

    @property
    def table(self) -> Table:
        """All numbers of ``comparison.json``.

        Raises:
            ConfigError: The file is damaged.
        """
        return read_content(RunPaths(self.folder).evaluation / TABLE_NAME, Table, remedy="compare again")

    @property
    def frame(self) -> pd.DataFrame:
        """A row per trial: varied values, accuracy, loss, times, images/s, bytes."""
        pandas = load_pandas("comparison.frame")
        rows = []
        for row in self.table.rows:
            numbers = row.model_dump(exclude={"values", "figure", "accuracy_interval", "same_runs", "run"})
            figure = {} if row.figure is None else {row.figure.name: row.figure.value}
            rows.append({**numbers, **row.values, **figure})
        return pandas.DataFrame(rows).set_index("number")

    @property
    def runs(self) -> dict[str, Run]:
        """Name of a trial -> run, of trials with a started training."""
        trials = {row.name: Path(row.run_dir) for row in self.table.rows}
        return {name: Run(folder) for name, folder in trials.items() if Run.is_at(folder)}

    @property
    def report(self) -> Path:
        """The page ``report.html``, usable without a network."""
        return RunPaths(self.folder).evaluation / "report.html"

    def plot(self) -> go.Figure:
        """Return the test accuracy of each trial over the training time.

        Raises:
            ConfigError: No trial was tested while it trained.
        """
        graph_objects, _ = load_plotly("comparison.plot()")
        lines = self._accuracy_lines()
        if not lines:
            msg = f"folder={self.folder}: no trial was tested while it trained: there is nothing to draw"
            raise ConfigError(msg)
        figure = graph_objects.Figure()
        for name, points in lines.items():
            x, y = zip(*points, strict=True)
            figure.add_trace(graph_objects.Scatter(x=x, y=y, name=name, mode="lines+markers"))
        figure.update_layout(xaxis_title="seconds of training", yaxis_title="test accuracy", yaxis_tickformat=".0%")
        return figure

    def _accuracy_lines(self) -> dict[str, Points]:
        plan = read_plan(self.folder)
        if plan is None:
            return {}
        courses = read_courses(plan.trials)
        lines = {
            trial.name: [(test.seconds, test.accuracy) for test in courses[trial.number].tests] for trial in plan.trials
        }
        return {name: points for name, points in lines.items() if points}

    def _card(self) -> Card:
        table = self.table
        names = ["trial", "accuracy", "loss", "seconds", "images/s"]
        rows = [
            [
                row.name,
                *(number_text(value) for value in (row.accuracy, row.loss, row.seconds, row.images_per_s)),
                row.reason,
            ]
            for row in table.rows
        ]
        return Card(
            f"Comparison of {len(table.rows)} trainings",
            str(self.folder),
            note=table.created[:16].replace("T", " "),
            table=CardTable([*names, ""], rows),
        )
