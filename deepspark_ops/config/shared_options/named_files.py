"""Options about the files and code of a net, a solver and lists."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator

from deepspark_ops.config.base import StageConfig, parse_config


def _list(value: Any) -> Any:
    """Split a text, or several texts, at commas; return other values unchanged."""
    value = [value] if isinstance(value, str | Path) else value
    if not isinstance(value, list | tuple):
        return value
    parts = [part.strip() if isinstance(part, str) else part for item in value for part in _parts(item)]
    return tuple(part for part in parts if part != "")


def _parts(item: Any) -> list[Any]:
    return item.split(",") if isinstance(item, str) else [item]


_TEXT = WithJsonSchema({"type": "string"}, mode="validation")
FolderList = Annotated[tuple[Path, ...], BeforeValidator(_list), _TEXT]
ModuleList = Annotated[tuple[str, ...], BeforeValidator(_list), _TEXT]


class ListedFiles(StageConfig):
    """Files of a net, a solver and lists."""

    allowed_root: FolderList = Field(
        (),
        description="Folder for the files of a net, a solver and lists, besides the folders of solver and data; can be"
        " given several times",
        json_schema_extra={"repeatable": True},
    )
    confined: bool = Field(
        False, description="Refuse a named file outside of the allowed folders; off: a warning per folder"
    )


class NamedFiles(ListedFiles):
    """Files and code of a net, a solver and lists."""

    allow_python_layers: bool = Field(
        False, description="Import any module of a net's Python layers: the module's code runs with your rights"
    )
    python_layers: ModuleList = Field((), description="Modules of Python layers that may be imported, with commas")

    @field_validator("python_layers")
    @classmethod
    def _names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not all(part.isidentifier() for part in name.split(".")):
                msg = f"{name!r} is no name of a module; allowed: names like ours.layers, with commas between them"
                raise ValueError(msg)
        return names


AS_GIVEN = parse_config(NamedFiles, {})
LISTED_AS_GIVEN = parse_config(ListedFiles, {})
ListedFilesPart = Annotated[ListedFiles, Field(description="Files that lists name")]
NamedFilesPart = Annotated[NamedFiles, Field(description="Files and code that a net names")]
