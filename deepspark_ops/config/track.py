"""Options of the transfer to MLflow."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from deepspark_ops.config.base import StageConfig


class TrackConfig(StageConfig):
    """Send a run's or a model's missing data to MLflow."""

    folder: Path = Field(description="Folder of a run, or of a model, e.g. models/digits")
    over: bool = Field(
        default=False,
        description="The run's training was killed, so the run has no event of the end",
    )
