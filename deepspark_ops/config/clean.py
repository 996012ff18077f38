"""Options of stage clean."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from deepspark_ops.config.base import FORM, StageConfig


class CleanConfig(StageConfig):
    """List the runs and datasets that are no longer needed, or remove them."""

    home: Path = Field(description="Folder that holds runs/, datasets/ and models/")
    remove: bool = Field(
        False,
        title="Remove",
        description="Really remove what is listed; without it nothing is touched",
        json_schema_extra=FORM,
    )
    older_than: int = Field(
        30,
        ge=1,
        le=36_500,
        title="Older than (days)",
        description="Only what has not changed for this many days",
        json_schema_extra=FORM,
    )
    keep_runs: int = Field(
        10,
        ge=0,
        title="Runs that stay",
        description="The newest runs of each DAG that stay, however old they are",
        json_schema_extra=FORM,
    )
    keep_datasets: int = Field(
        2,
        ge=0,
        title="Datasets that stay",
        description="The newest datasets that stay, however old they are",
        json_schema_extra=FORM,
    )
    models: Path | None = Field(
        None,
        title="Models folder",
        description="Folder of models in production; what their versions came from stays. Default: models/ beside"
        " runs/",
        json_schema_extra=FORM,
    )
