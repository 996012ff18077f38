"""Folders of an Airflow's runs, datasets and models: the fields of connection ``deepspark_default``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator

from deepspark_ops.config.base import StageConfig


def _folders(value: Any) -> Any:
    return [part for part in value.split(os.pathsep) if part.strip()] if isinstance(value, str) else value


def _empty_as_none(value: Any) -> Any:
    return None if isinstance(value, str) and not value.strip() else value


class PlacesConfig(StageConfig):
    """Folders of the connection; a missing field takes the value of the environment's variable."""

    home: Annotated[Path | None, BeforeValidator(_empty_as_none)] = Field(
        None, title="Home", description="Folder of runs/, datasets/ and models/; default: DEEPSPARK_HOME"
    )
    models: Annotated[Path | None, BeforeValidator(_empty_as_none)] = Field(
        None, title="Models", description="Folder of models in production; default: models/ in the home folder"
    )
    allowed_roots: Annotated[tuple[Path, ...] | None, BeforeValidator(_folders)] = Field(
        None,
        title="Allowed roots",
        description="Folders for the files of nets, solvers and lists, with colons between; default:"
        " DEEPSPARK_ALLOWED_ROOTS",
    )

    @field_validator("home", "models", "allowed_roots")
    @classmethod
    def _are_absolute(cls, value: Path | tuple[Path, ...] | None) -> Path | tuple[Path, ...] | None:
        for folder in value if isinstance(value, tuple) else () if value is None else (value,):
            if not folder.is_absolute():
                msg = f"{folder} is no absolute path; Airflow's processes start in different folders"
                raise ValueError(msg)
        return value
