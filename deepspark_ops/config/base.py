"""Shared parts of the config models, and validation of plain values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    ValidationError,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import core_schema

from deepspark_ops.errors import ConfigError
from deepspark_ops.stores.store_path import STORE_SCHEMES, DataPath, StorePath, data_path, local_path

FORM: dict[str, Any] = {"form": "basic"}
"""Marks a field in the form of its stage's DAG; the field needs a title."""
EXPERT: dict[str, Any] = {"form": "expert"}
"""Marks a rarely changed field of the form, in the expert part of its section."""
Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]

Engine = Literal["auto", "spark", "process"]
SparkMaster = Annotated[str, Field(description="Spark master")]
ListenAddress = Annotated[
    str,
    Field(
        min_length=1,
        title="Listen address",
        description="Address of the driver's host for the workers' connections; auto: 127.0.0.1 for a local master,"
        " else the host's address towards the master",
        json_schema_extra=EXPERT,
    ),
]
ListenPort = Annotated[
    int,
    Field(
        ge=0,
        le=65_535,
        description="First port of the driver's servers for workers: the servers of the exchange, then the server of"
        " the driver's files; 0: chosen by the system",
    ),
]
InsecureNetwork = Annotated[
    bool,
    Field(
        title="Allow an open network",
        description="Accept a cluster without encryption between driver and executors; even the exchange's secret is"
        " sent in clear",
        json_schema_extra=EXPERT,
    ),
]
WHERE_IT_RUNS = frozenset({"engine", "master", "listen_address", "insecure_network"})
"""Fields of a Spark stage about its place of execution, without effect on its results."""


def _paths(value: Any) -> Any:
    if isinstance(value, Path):
        return (value,)
    if not isinstance(value, str):
        return value
    files = tuple(part.strip() for part in value.split(",") if part.strip())
    if not files:
        msg = "names no file; give one, or several with commas between them"
        raise ValueError(msg)
    return files


FileList = Annotated[
    tuple[Path, ...], BeforeValidator(_paths), WithJsonSchema({"type": "string", "format": "path"}, mode="validation")
]
"""One file, or several comma-separated files, as in Caffe's tool; a text in forms and options."""


def _data_path_schema(_: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
    """Return the schema of a path whose text may be an address; forms see a path."""

    def validated(value: Any, as_path: core_schema.ValidatorFunctionWrapHandler) -> DataPath:
        return data_path(value) if isinstance(value, str | StorePath) else as_path(value)

    text = core_schema.to_string_ser_schema(when_used="json")  # model_dump() keeps the object
    return core_schema.no_info_wrap_validator_function(validated, handler(Path), serialization=text)


DataPathField = Annotated[DataPath, GetPydanticSchema(_data_path_schema)]
"""Path of input or output data: local, or in a store, ``s3://bucket/key``, which pathlib would take for a relative
path."""


_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def _bytes(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *([kmgt]?)(?:i?b)?", value.strip().lower())
    if match is None:
        msg = "is not a number of bytes; allowed: 8GiB, 500M, 2000000000 (K, M, G and T are powers of 1024)"
        raise ValueError(msg)
    return int(float(match[1]) * _UNITS[match[2]])


MemorySize = Annotated[int, BeforeValidator(_bytes), Field(ge=1), WithJsonSchema({"type": "string"}, mode="validation")]
"""A number of bytes, as a number or as a text with a unit."""


StagingFolder = Annotated[
    Path | None,
    Field(
        title="Folder of copies",
        description="Folder on each host's disk for copies of data from an object store or the driver's disk;"
        " default: deepspark-staging-UID in the system's folder for temporary files",
        json_schema_extra=EXPERT,
    ),
]
StagingSize = Annotated[
    MemorySize,
    Field(
        title="Size of copies",
        description="Most bytes of the copies on a host, e.g. 100GiB; the least recently used copies are removed",
        json_schema_extra=EXPERT,
    ),
]
DEFAULT_STAGING_SIZE: Any = "20GiB"
"""Text for forms and help; models validate their defaults."""


SolverFile = Annotated[
    Path,
    Field(title="Solver", description="Caffe solver prototxt, e.g. nets/lenet_solver.prototxt", json_schema_extra=FORM),
]
SolverOverrides = Annotated[
    str,
    Field(
        title="Changes to the solver",
        description="Solver fields in prototxt, in place of the file's fields, e.g. 'max_iter: 200 base_lr: 0.02'",
        json_schema_extra={**FORM, "format": "multiline"},
    ),
]
StartWeights = Annotated[
    FileList | None,
    Field(
        title="Start from weights",
        description="Fine-tune: .caffemodel whose blobs are copied by layer name; of several (a,b) the later override",
        json_schema_extra=FORM,
    ),
]

SampleShape = Annotated[
    str | None,
    Field(
        pattern=r"^\d+(x\d+)*$",
        description="Shape of a sample, e.g. 3x32x32, where the data are not here",
        json_schema_extra={"allowed": "whole numbers with x between them, like 3x32x32"},
    ),
]


def extents_of(sample_shape: str) -> tuple[int, ...]:
    """Return the extents of a ``SampleShape``.

    Example:
        >>> extents_of("3x32x32")
        (3, 32, 32)
    """
    return tuple(int(extent) for extent in sample_shape.split("x"))


def file_list_text(files: tuple[Path, ...]) -> str:
    """Return the files as comma-separated text."""
    return ",".join(str(path) for path in files)


_STORE_ROOTS: Final = tuple((f"{scheme}:",) for scheme in STORE_SCHEMES)
"""First part of a path that pathlib makes of an address."""


class StageConfig(BaseModel):
    """Base of all stages: frozen, no unknown fields, no infinite numbers, because JSON lacks infinity.

    A model is built when it is first used: a command starts with all models and uses one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False, defer_build=True)

    @field_validator("*")
    @classmethod
    def _local(cls, value: Any) -> Any:
        """Return local paths of a user's texts: ``~/data`` and ``file:///data`` are absolute."""
        if isinstance(value, tuple):
            return tuple(map(cls._local, value))
        if not isinstance(value, Path):
            return value
        if value.parts[:1] in _STORE_ROOTS:
            msg = "is in an object store; allowed: a file or folder on the disk"
            raise ValueError(msg)
        if any("\ud800" <= character <= "\udfff" for character in str(value)):
            msg = "is a name that is no UTF-8 text; rename the file or folder"  # JSON cannot hold the config
            raise ValueError(msg)
        return local_path(value)

    def paths_inside(self) -> frozenset[str]:
        """Return the path fields inside an archive; such paths are no paths of the file system."""
        return frozenset()


_SHOWN: Final = 300
"""Most characters of a refused value in a message."""

Config = TypeVar("Config", bound=StageConfig)


def parse_config(model: type[Config], values: dict[str, Any]) -> Config:
    """Validate ``values`` as ``model``.

    Raises:
        ConfigError: One line per wrong field: name, finding, value.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ConfigError("\n".join(_error_lines(model, error.errors()))) from None


def wrong_values(model: type[StageConfig], values: dict[str, Any]) -> list[str]:
    """Return a line per wrong value: name, finding, value. Missing fields and rules of several fields do not count."""
    try:
        model.model_validate(values)
    except ValidationError as error:
        return _error_lines(model, [problem for problem in error.errors() if set(problem["loc"][:1]) & set(values)])
    return []


def _error_lines(model: type[StageConfig], problems: Sequence[Any]) -> list[str]:
    findings: dict[str, list[str]] = {}
    problems = _in_own_words(model, problems)
    refused = {str(problem["loc"][0]) for problem in problems if problem["loc"] and problem["type"] != "string_type"}
    for problem in problems:
        # The location of a union's member includes the member's tag; the user wrote the first part.
        name = str(problem["loc"][0]) if problem["loc"] else ""  # a rule of several fields names the fields itself
        if problem["type"] == "string_type" and name in refused:
            continue  # the field also accepts text, but the value was no text
        finding = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "missing" and len(problem["loc"]) == 1:
            finding = f"must be given: {model.model_fields[name].description}"
        allowed_fields = f"; known: {', '.join(model.model_fields)}" if problem["type"] == "extra_forbidden" else ""
        value = "" if problem["type"] == "missing" else f"={_shown(problem['input'])}"
        start = f"{name}{value}: " if name else ""
        findings.setdefault(start, []).append(finding + allowed_fields)
    return [start + _alternatives(list(dict.fromkeys(field_findings))) for start, field_findings in findings.items()]


def _shown(value: Any) -> str:
    """Return a refused value in one line; a long one, such as a table of pandas, is cut."""
    text = " ".join(repr(value).split()) if not isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _in_own_words(model: type[StageConfig], problems: Sequence[Any]) -> list[Any]:
    """Replace the messages of a union's members by the field's own sentence about allowed values.

    A message of one of our validators about the value, such as a schedule with descending clocks, is kept.
    """
    messages: dict[Any, Any] = {}
    validated_fields = {
        problem["loc"][0] for problem in problems if problem["loc"] and problem["type"] == "value_error"
    }
    for index, problem in enumerate(problems):
        name = problem["loc"][0] if problem["loc"] else None
        extra = model.model_fields[name].json_schema_extra if name in model.model_fields else None
        allowed = extra.get("allowed") if isinstance(extra, dict) else None
        if allowed is None:
            messages[index] = problem
        elif name not in validated_fields:
            messages[name] = {**problem, "type": "allowed", "msg": f"must be {allowed}"}
        elif problem["type"] == "value_error":
            messages[index] = problem
    return list(messages.values())


def with_paths_from(config: Config, folder: Path) -> Config:
    """Return the config with every relative path taken from ``folder``: a run's config is read from other folders."""
    absolute_fields: dict[str, DataPath | tuple[Path, ...] | StageConfig] = {}
    for name, value in config:
        if name in config.paths_inside():
            continue
        if isinstance(value, Path | StorePath):
            absolute_fields[name] = folder / value
        elif isinstance(value, tuple) and all(isinstance(item, Path) for item in value):
            absolute_fields[name] = tuple(folder / item for item in value)
        elif isinstance(value, StageConfig):
            absolute_fields[name] = with_paths_from(value, folder)
    return config.model_copy(update=absolute_fields)


def _alternatives(findings: list[str]) -> str:
    """Join what the members of a union say of a value, without what pydantic repeats.

    Example:
        >>> _alternatives(["Input should be 'auto'", "Input should be a valid integer"])
        "Input should be 'auto' or a valid integer"
    """
    short = [re.sub(r", unable to parse string as an? (integer|number)$", "", finding) for finding in findings]
    return " or ".join([*short[:1], *(finding.removeprefix("Input should be ") for finding in short[1:])])
