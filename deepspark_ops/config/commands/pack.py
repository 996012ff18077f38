"""Options of ``deepspark pack``."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from deepspark_ops.config.base import StageConfig

_NAMES = r"[A-Za-z0-9][A-Za-z0-9._-]*"


class PackConfig(StageConfig):
    """Write an archive with the interpreter and the packages of a Spark worker, for hosts without them."""

    output: Path = Field(description="Archive to write: a name that ends with .tar.gz or .tgz")
    extras: str = Field(
        "train",
        pattern=rf"^{_NAMES}(,{_NAMES})*$",
        description="Extras of deepspark in the archive, commas between them: train; gpu for CUDA's libraries; tables"
        " for datasets in object stores, and for ingestion of tables",
        json_schema_extra={"allowed": "extras of deepspark, commas between them, like train,tables"},
    )
    packages: str | None = Field(
        None,
        pattern=rf"^{_NAMES}(,{_NAMES})*$",
        description="Further installed packages in the archive, with the packages that they require, commas between"
        " them; for example a package with layers of your own",
        json_schema_extra={"allowed": "names of installed packages, commas between them"},
    )

    @field_validator("output")
    @classmethod
    def _is_archive(cls, value: Path) -> Path:
        if not value.name.endswith((".tar.gz", ".tgz")):
            msg = f"{value} ends with neither .tar.gz nor .tgz: Spark unpacks others without the right to run programs"
            raise ValueError(msg)
        return value
