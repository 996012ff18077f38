"""An evaluation as an object."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from deepspark_ops.api.mistakes import mistakes_as_config_errors
from deepspark_ops.api.results.card import Card
from deepspark_ops.api.results.result_folder import LocalFolder
from deepspark_ops.evaluate.metrics import METRICS_NAME, REPORT_NAME, read_metrics

if TYPE_CHECKING:
    from deepspark_ops.evaluate.tasks.metrics_head import MetricsReport


class Evaluation(LocalFolder):
    """Metrics and report of a net on a dataset."""

    kind: ClassVar[str] = f"evaluation ({METRICS_NAME})"
    written_by: ClassVar[str] = "ds.evaluate or deepspark evaluate"
    _marks: ClassVar[tuple[str, ...]] = (METRICS_NAME,)

    @property
    def metrics(self) -> MetricsReport:
        """All figures of ``metrics.json``: ``metrics.top1``, ``metrics.loss`` of a classification.

        Raises:
            ConfigError: The file is damaged.
        """
        with mistakes_as_config_errors():
            return read_metrics(self.folder / METRICS_NAME)

    @property
    def report(self) -> Path:
        """The page ``report.html``, usable without a network."""
        return self.folder / REPORT_NAME

    def _card(self) -> Card:
        metrics = self.metrics
        rows = {row.label: row.text() for row in metrics.rows() if row.value is not None}
        scored = metrics.scored
        return Card(
            f"Evaluation: {metrics.kind}",
            str(self.folder),
            note=f"{metrics.n_samples:,} samples",
            rows={**rows, "net": scored.net, "weights": scored.weights, "data": f"{scored.dataset} ({scored.split})"},
        )
