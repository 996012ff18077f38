"""A run as an object: numbers, curves, workers, files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from deepspark_ops.api.mistakes import mistakes_as_config_errors
from deepspark_ops.api.results.bundle import Bundle
from deepspark_ops.api.results.card import Card, Points
from deepspark_ops.api.results.dataset import Dataset
from deepspark_ops.api.results.evaluation import Evaluation
from deepspark_ops.api.results.frames import load_pandas, load_plotly
from deepspark_ops.api.results.result_folder import LocalFolder
from deepspark_ops.errors import ConfigError
from deepspark_ops.evaluate.metrics import METRICS_NAME
from deepspark_ops.events import DRIVER, read_events
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.run_view.chart_lines import CHARTS, chart_lines
from deepspark_ops.run_view.reading import RunReading

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from deepspark_ops.evaluate.tasks.metrics_head import MetricsReport

_NOT_FINITE: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_EVENT_COLUMNS: Final = ("time", "kind", "clock", "worker")
_DASHES: Final = {"whole": "solid", "worker": "dot", "test": "solid", "server": "solid"}


class Run(LocalFolder):
    """A training: a folder with config, events, snapshots, and the output of later stages.

    Example:
        .. code-block:: python

            run = ds.Run("runs/lenet")
            run.history[run.history.kind == "loss"].plot(x="clock", y="loss")
    """

    kind: ClassVar[str] = "run"
    written_by: ClassVar[str] = "ds.train or deepspark train"
    _marks: ClassVar[tuple[str, ...]] = (RunPaths(Path()).config.name, RunPaths(Path()).events.name)

    @property
    def config(self) -> Mapping[str, Any]:
        """The options of the training, read from ``config.json``."""
        from deepspark_ops.run_index.summary import read_config

        return read_config(self.folder)

    @property
    def status(self) -> str:
        """``finished``, ``stopped`` by a signal, ``failed``, or ``running`` while its events name no end."""
        ended = self._reading().progress.ended
        return "running" if ended is None else str(ended.get("status", "ended"))

    @property
    def clock(self) -> int:
        """Minibatches so far, over all workers."""
        return self._reading().progress.clock

    @property
    def max_iter(self) -> int | None:
        """Minibatches at the end of the run; None before the training began."""
        return self._reading().progress.max_iter

    @property
    def loss(self) -> float | None:
        """Mean of the workers' last losses; None before the first."""
        return self._reading().progress.mean_loss()

    @property
    def metrics(self) -> MetricsReport:
        """The figures of ``ds.evaluate``, read from ``metrics.json``.

        Raises:
            ConfigError: The run is not evaluated yet.
        """
        return self.evaluation.metrics

    @property
    def evaluation(self) -> Evaluation:
        """Metrics and report.

        Raises:
            ConfigError: The run is not evaluated yet.
        """
        if not self._is_evaluated:
            msg = f"run_dir={self.folder}: no {METRICS_NAME} in it: call ds.evaluate(run) first"
            raise ConfigError(msg)
        return Evaluation(RunPaths(self.folder).evaluation)

    @property
    def history(self) -> pd.DataFrame:
        """All events, a row each, oldest first: ``time`` (UTC), ``kind``, ``clock``, ``worker`` (-1: none), numbers.

        A number that an event does not have is NaN there. ``kind`` says which numbers an event has: ``loss`` of a
        worker, ``evaluation`` of a test net, ``server`` of the exchange, ``snapshot``, ``stage`` and others.
        """
        pandas = load_pandas("run.history")
        rows = [
            {
                **{name: _number(value) for name, value in event.data.items()},
                "time": event.time,
                "kind": event.kind,
                "clock": event.clock,
                "worker": event.worker,
            }
            for event in read_events(RunPaths(self.folder).events)
        ]
        names = dict.fromkeys(name for row in rows for name in row)
        columns = [*_EVENT_COLUMNS, *(name for name in names if name not in _EVENT_COLUMNS)]
        frame = pandas.DataFrame(rows, columns=columns)
        frame["time"] = pandas.to_datetime(frame["time"], unit="s", utc=True)
        return frame

    @property
    def workers(self) -> pd.DataFrame:
        """A row per worker, of its last report: state, clock, loss, images/s, where its time went, host, device.

        ``state`` is ``joined``, ``training`` or ``lost``; after the end of the training ``ended`` or ``lost``.
        """
        pandas = load_pandas("run.workers")
        rows = []
        progress = self._reading().progress
        for number, worker in sorted(progress.workers.items()):
            if number == DRIVER:
                continue
            numbers = {name: _number(value) for name, value in worker.report.items() if not isinstance(value, list)}
            rows.append(
                {
                    "worker": number,
                    "state": progress.state_of(worker),
                    "clock": worker.clock,
                    **numbers,
                    "starts": worker.starts,
                    "host": worker.host,
                    "device": worker.device,
                    "reason": worker.reason,
                }
            )
        names = ["worker", "state", "clock", "starts", "host", "device", "reason"]
        return (pandas.DataFrame(rows) if rows else pandas.DataFrame(columns=names)).set_index("worker")

    @property
    def dataset(self) -> Dataset | None:
        """The ingested dataset of the training; None for the net's sources."""
        dataset = self.config.get("dataset")
        return Dataset(str(dataset)) if dataset else None

    @property
    def bundle(self) -> Bundle | None:
        """The bundle in the folder; None before ``ds.export``."""
        folder = RunPaths(self.folder).bundle
        return Bundle(folder) if Bundle.is_at(folder) else None

    @property
    def snapshots(self) -> tuple[Path, ...]:
        """The weights files, oldest first."""
        files = RunPaths(self.folder).snapshots.glob("*_iter_*.caffemodel*")
        return tuple(sorted(files, key=lambda file: int(file.name.partition("_iter_")[2].partition(".")[0])))

    def plot(self) -> go.Figure:
        """Return the curves over the clock: loss, test accuracy, images per second, where the workers' time goes."""
        graph_objects, subplots = load_plotly("run.plot()")
        reading = self._reading()
        lines = chart_lines(reading.series, reading.progress.first_time or 0.0)
        charts = [chart for chart in CHARTS if chart.is_first and any(line["chart"] == chart.name for line in lines)]
        if not charts:
            msg = f"run_dir={self.folder}: no worker has reported yet: there is nothing to draw"
            raise ConfigError(msg)
        figure = subplots.make_subplots(
            rows=len(charts), cols=1, shared_xaxes=True, subplot_titles=[chart.title for chart in charts],
            vertical_spacing=0.35 / (len(charts) + 1),
        )  # fmt: skip
        for row, chart in enumerate(charts, start=1):
            for line in (line for line in lines if line["chart"] == chart.name):
                trace = graph_objects.Scatter(
                    x=line["clock"],
                    y=line["value"],
                    name=line["name"],
                    mode="lines+markers" if line["kind"] == "test" else "lines",
                    line={"dash": _DASHES[line["kind"]]},
                    stackgroup=chart.name if chart.is_stacked else None,
                    legendgroup=chart.name,
                    legendgrouptitle_text=chart.title,
                )
                figure.add_trace(trace, row=row, col=1)
            if chart.unit == "share":
                figure.update_yaxes(tickformat=".0%", range=[0, 1], row=row, col=1)
        figure.update_xaxes(title_text="minibatches over all workers", row=len(charts), col=1)
        figure.update_layout(title=reading.progress.title or self.folder.name, height=120 + 230 * len(charts))
        return figure

    def _card(self) -> Card:
        from deepspark_ops.run_index.run_text import run_figures, run_state
        from deepspark_ops.run_index.summary import summarize

        reading = self._reading()
        summary = summarize(reading, self.folder)
        rows: dict[str, object] = {
            **run_figures(summary),
            "dataset": self.config.get("dataset"),
            "snapshots": len(self.snapshots) or None,
        }
        if self._is_evaluated:
            with mistakes_as_config_errors():
                rows["evaluation"] = self.metrics.summary()
        if self.bundle is not None:
            rows["bundle"] = self.bundle.folder
        tests = chart_lines(reading.series, 0.0)
        curves: dict[str, dict[str, Points]] = {
            "training loss, mean of the workers": {"loss": _loss_points(reading)},
            "test accuracy": {
                line["name"]: [(x, y) for x, y in zip(line["clock"], line["value"], strict=True) if y is not None]
                for line in tests
                if line["chart"] == "test_accuracy"
            },
        }
        name = summary.name or reading.progress.title or "run"
        return Card(f"Run: {name}", str(self.folder), note=run_state(summary), rows=rows, curves=curves)

    @property
    def _is_evaluated(self) -> bool:
        return (RunPaths(self.folder).evaluation / METRICS_NAME).is_file()

    def _reading(self) -> RunReading:
        reading = RunReading(self.folder)
        reading.refresh()
        return reading


def _number(value: Any) -> Any:
    """Return JSON's text of a number, NaN or infinity, as the number."""
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value


def _loss_points(reading: RunReading) -> Points:
    from deepspark_ops.run_index.summary import loss_curve

    return loss_curve(reading.series)
