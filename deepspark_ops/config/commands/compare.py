"""Options of a comparison outside Airflow."""

from __future__ import annotations

from deepspark_ops.config.compare import TrialLists
from deepspark_ops.config.run_label import RunLabelConfig
from deepspark_ops.config.train import TrainConfig


class CompareTrainingsConfig(TrialLists, RunLabelConfig, TrainConfig):
    """Train in several ways, one training after another, score each, and compare; a list replaces the single value."""

    def training_values(self) -> dict[str, object]:
        """Return the values of the fields equal in all trials."""
        return {name: value for name, value in self if name in TrainConfig.model_fields}
