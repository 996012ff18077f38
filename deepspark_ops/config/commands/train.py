"""Options of a training outside Airflow: the training, and the run's name."""

from __future__ import annotations

from pydantic import Field

from deepspark_ops.config.run_label import RunLabelConfig
from deepspark_ops.config.train import TrainConfig


class NamedTrainConfig(TrainConfig):
    """Train the solver's net, in a run with a name and tags."""

    label: RunLabelConfig = Field(RunLabelConfig(), description="Name and tags of the run")

    def training(self) -> TrainConfig:
        """Return the training without name and tags."""
        values = {name: value for name, value in self if name in TrainConfig.model_fields}
        return TrainConfig.model_construct(self.model_fields_set & set(values), **values)
