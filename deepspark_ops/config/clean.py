"""Options of stage clean."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from deepspark_ops.config.base import FORM, StageConfig


class CleanConfig(StageConfig):
    """List the runs and datasets that are no longer needed, or remove them."""

    home: Path = Field(description="Folder of runs/, datasets/ and models/")
    remove: bool = Field(
        False,
        title="Remove",
        description="Remove the listed folders; off: only list the folders",
        json_schema_extra=FORM,
    )
    older_than: int = Field(
        30,
        ge=1,
        le=36_500,
        title="Older than (days)",
        description="Only folders without a change for this number of days",
        json_schema_extra=FORM,
    )
    keep_runs: int = Field(
        10,
        ge=0,
        title="Runs that stay",
        description="Number of newest runs of each DAG to keep at any age",
        json_schema_extra=FORM,
    )
    keep_datasets: int = Field(
        2,
        ge=0,
        title="Datasets that stay",
        description="Number of newest datasets to keep at any age",
        json_schema_extra=FORM,
    )
    models: Path | None = Field(
        None,
        title="Models folder",
        description="Folder of models in production; the sources of all versions stay. Default: models/ beside runs/."
        " A run of Airflow always counts the models of the installation, too",
        json_schema_extra=FORM,
    )
