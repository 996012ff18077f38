"""The Python functions of the stages, made from the stages' config models: arguments, defaults, types, docstrings."""

from __future__ import annotations

import functools
import inspect
import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from deepspark_ops.api.mistakes import mistakes_as_config_errors
from deepspark_ops.config.base import Config, StageConfig, with_paths_from
from deepspark_ops.config.flat_fields import config_from_fields, flat_fields, union_members
from deepspark_ops.config.shared_options.worker_count import WorkerRange
from deepspark_ops.errors import ConfigError
from deepspark_ops.stores.store_path import StorePath

Result = TypeVar("Result")
PROGRESS: Final = "progress"
_PROGRESS_TEXT: Final = "Show how far the stage is: on a terminal, in a notebook, else as lines on stderr."
_DOC_COLUMNS: Final = 112
_WRITTEN_BY: Final = {
    ("pandas", "DataFrame"): ("rows.parquet", 'frame.to_parquet("rows.parquet")'),
    ("pyspark", "DataFrame"): ("rows", 'frame.write.parquet("rows")'),
    ("polars", "DataFrame"): ("rows.parquet", 'frame.write_parquet("rows.parquet")'),
    ("pyarrow", "Table"): ("rows.parquet", 'pyarrow.parquet.write_table(table, "rows.parquet")'),
    ("numpy", "ndarray"): ("rows.h5", 'with h5py.File("rows.h5", "w") as file: file.update(data=array, label=labels)'),
}
"""Module and class of rows in memory -> file, and the line that writes the file."""
_PLAIN: Final[Mapping[Any, str]] = {
    WorkerRange: "str",
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    Path: "StrPath",
    StorePath: "StrPath",
}


def stage_function(
    model: type[Config], *, positional: Sequence[str] = (), shows_progress: bool = True
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Turn a function of a config into a function of the config's fields as keywords.

    Args:
        model: Declares the fields.
        positional: Fields that may be given by position, in this order.
        shows_progress: Whether the function has an argument ``is_shown``, which becomes ``progress``.
    """

    def wrap(run: Callable[..., Result]) -> Callable[..., Result]:
        name = run.__name__

        @functools.wraps(run)
        def call(*args: Any, **values: Any) -> Result:
            if len(args) > len(positional):
                extra = ", ".join(repr(value) for value in args[len(positional) :])
                msg = (
                    f"{name}: {extra}: at most {len(positional)} by position ({', '.join(positional)}); name the others"
                )
                raise ConfigError(msg)
            options = {"is_shown": bool(values.pop(PROGRESS, True))} if shows_progress else {}
            for field, value in zip(positional, args, strict=False):
                if field in values:
                    msg = f"{field}={values[field]!r}: given by position, too, as {value!r}: give one"
                    raise ConfigError(msg)
                values[field] = value
            with mistakes_as_config_errors():
                return run(config_from_call(model, values), **options)

        call.__signature__ = signature_of(model, positional, shows_progress=shows_progress)  # type: ignore[attr-defined]
        call.__doc__ = docstring_of(run.__doc__ or "", model, positional, shows_progress=shows_progress)
        return call

    return wrap


def config_from_call(model: type[Config], values: Mapping[str, Any]) -> Config:
    """Return the config of keyword arguments; paths are taken from the present folder.

    Raises:
        ConfigError: Names the argument, the value, and what is allowed.
    """
    for name, value in values.items():
        _refuse_rows(name, value)
    plain = {name: _plain(value) for name, value in values.items()}
    return with_paths_from(config_from_fields(model, plain), Path.cwd())


def _refuse_rows(name: str, value: Any) -> None:
    """Refuse rows in memory: a dataset remembers the path of its source.

    Raises:
        ConfigError: The value is a DataFrame or an array; the message has the lines that write and name a file.
    """
    kind = (type(value).__module__.partition(".")[0], type(value).__name__)
    if kind in _WRITTEN_BY:
        path, writer = _WRITTEN_BY[kind]
        file = f'ds.ingest("{path}", "datasets/rows")' if name == "dataset" else f'"{path}"'
        words = f"{name}: a {' '.join(kind)}, but the argument takes a path"
        msg = f"{words}. Write a file, then give its path:\n    {writer}\n    {name}={file}"
        raise ConfigError(msg)


def _plain(value: Any) -> Any:
    """Return the path of a run, a dataset, a bundle and the like."""
    if isinstance(value, os.PathLike) and not isinstance(value, Path):
        folder = getattr(value, "folder", None)  # of a result, which may be in a store
        return os.fspath(value) if folder is None else folder
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def signature_of(model: type[StageConfig], positional: Sequence[str], *, shows_progress: bool) -> inspect.Signature:
    """Return the signature for the completion of editors and notebooks."""
    fields = flat_fields(model)
    parameters = [_parameter(name, fields[name], inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in positional]
    keyword_names = [name for name in fields if name not in positional]
    keyword_names.sort(key=lambda name: not _is_required(model, name))
    parameters += [_parameter(name, fields[name], inspect.Parameter.KEYWORD_ONLY) for name in keyword_names]
    if shows_progress:
        parameters.append(inspect.Parameter(PROGRESS, inspect.Parameter.KEYWORD_ONLY, default=True, annotation="bool"))
    return inspect.Signature([_with_default(parameter, model) for parameter in parameters])


def _is_required(model: type[StageConfig], name: str) -> bool:
    return name in model.model_fields and model.model_fields[name].is_required()


def _parameter(name: str, info: FieldInfo, kind: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if info.is_required() else info.default
    return inspect.Parameter(name, kind, default=default, annotation=type_text(info))


def _with_default(parameter: inspect.Parameter, model: type[StageConfig]) -> inspect.Parameter:
    """Give a required field of an optional nested config the default None."""
    if parameter.default is not inspect.Parameter.empty or parameter.name in model.model_fields:
        return parameter
    return parameter.replace(default=None, annotation=f"{parameter.annotation} | None")


def type_text(info: FieldInfo) -> str:
    """Return the type of a field for an editor: the type of the argument, not of the config's value.

    Example:
        >>> from deepspark_ops.config.train import TrainConfig
        >>> [type_text(TrainConfig.model_fields[name]) for name in ("solver", "weights", "comm_period")]
        ['StrPath', 'StrPath | Sequence[StrPath] | None', "Literal['auto'] | int | str"]
    """
    texts = _texts(info.annotation, converts=any(isinstance(mark, BeforeValidator) for mark in info.metadata))
    ordered = [text for text in dict.fromkeys(texts) if text != "None"]
    return " | ".join([*ordered, *(["None"] if "None" in texts else [])])


def _texts(annotation: Any, *, converts: bool = False) -> list[str]:
    """Return the types of a union's members, a text per type.

    A value with a validator before pydantic's own is given as text, too: a number with a unit, a list with commas.
    """
    if annotation is type(None):
        return ["None"]
    if hasattr(annotation, "__metadata__"):
        inner, *marks = get_args(annotation)
        has_validator = any(isinstance(mark, BeforeValidator) for mark in marks) or any(
            isinstance(mark, FieldInfo) and any(isinstance(rule, BeforeValidator) for rule in mark.metadata)
            for mark in marks
        )
        return _texts(inner, converts=converts or has_validator)
    if get_origin(annotation) is Literal:
        return [f"Literal[{', '.join(repr(word) for word in get_args(annotation))}]"]
    if get_origin(annotation) is tuple:
        if get_origin(get_args(annotation)[0]) is tuple:  # pairs are given as lines of text
            return _texts(get_args(annotation)[0])
        (item,) = _texts(get_args(annotation)[0])
        return list(dict.fromkeys([item, *([] if item == "StrPath" else ["str"]), f"Sequence[{item}]"]))
    if annotation in _PLAIN:
        text = _PLAIN[annotation]
        return [text, "str"] if converts and text not in ("StrPath", "str") else [text]
    return [text for member in get_args(annotation) for text in _texts(member, converts=converts)]


def docstring_of(text: str, model: type[StageConfig], positional: Sequence[str], *, shows_progress: bool) -> str:
    """Return a docstring with a section ``Args`` out of the fields' descriptions."""
    fields = flat_fields(model)
    names = [*positional, *(name for name in fields if name not in positional)]
    described = [(name, _description(fields[name])) for name in names]
    if shows_progress:
        described.append((PROGRESS, _PROGRESS_TEXT))
    lines = [
        line
        for name, words in described
        for line in textwrap.wrap(f"{name}: {words}", _DOC_COLUMNS, initial_indent=" " * 4, subsequent_indent=" " * 8)
    ]
    return "\n".join([*inspect.cleandoc(text).splitlines(), "", "Args:", *lines, ""])


def _description(info: FieldInfo) -> str:
    words = info.description or info.title or ""
    for member in union_members(info.annotation):
        for mark in getattr(member, "__metadata__", ()):
            words = words or getattr(mark, "description", None) or ""
    return f"{words.rstrip('.')}."


def stub_text(name: str, function: Callable[..., object], result: str) -> str:
    """Return the function's entry in a stub file."""
    lines = [f"def {name}("]
    signature = inspect.signature(function)
    has_star = False
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not has_star:
            lines.append("    *,")
            has_star = True
        default = "" if parameter.default is inspect.Parameter.empty else f" = {_default_text(parameter.default)}"
        lines.append(f"    {parameter.name}: {parameter.annotation}{default},")
    lines.append(f") -> {result}:")
    summary, *rest_lines = (function.__doc__ or "").rstrip().splitlines()
    lines += [f'    """{summary}', *(f"    {line}".rstrip() for line in rest_lines), '    """']
    return "\n".join(lines)


def _default_text(value: Any) -> str:
    if value is None or isinstance(value, bool | int | float | str) or value == ():
        return repr(value)
    return repr(str(value)) if isinstance(value, Path) else "..."
