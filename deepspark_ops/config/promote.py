"""Options of stage promote."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from deepspark_ops.config.base import FORM, StageConfig


class PromoteConfig(StageConfig):
    """Put a bundle into production if it is better than the one there."""

    models: Path = Field(Path("models"), description="Folder of models in production", json_schema_extra=FORM)
    model: str = Field(
        "model",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="Name of the model in production: at most 64 letters, digits, dots, dashes and underscores",
        json_schema_extra=FORM,
    )
    metric: Literal["top1", "top5", "loss"] = Field("top1", description="What must be better", json_schema_extra=FORM)
    min_gain: float = Field(0.0, ge=0.0, description="How much better, in the metric's unit", json_schema_extra=FORM)
