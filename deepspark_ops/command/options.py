"""Command-line options from the config model of a stage; only the config model declares options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import annotated_types
import typer
import typer.core
from pydantic.fields import FieldInfo
from rich.markup import escape

from deepspark_ops.config.base import Config, with_paths_from
from deepspark_ops.config.flat_fields import (
    config_from_fields,
    flat_fields,
    nested_config,
    plain_members,
    solver_field_hint,
    union_members,
)
from deepspark_ops.config.shared_options.worker_count import WorkerRange
from deepspark_ops.exchange.strategies.base import strategy_names
from deepspark_ops.exchange.strategies.choice import strategy_choices
from deepspark_ops.stores.store_path import StorePath

_MAIN_PANEL = "Options"
_REST_PANEL = "Further options"
_SHORT_NAMES = {"n_workers": "--workers"}
"""Field -> a second name of its option."""
_CAFFE_NAMES = {"model": "net", "snapshot": "resume", "gpu": "devices"}
"""Caffe's flag -> the field here."""
_CAFFE_TOOLS = {
    "device_query": "doctor",
    "compute_image_mean": "model mean DB --output FILE",
    "extract_features": "features BUNDLE INPUT --blobs BLOBS --format lmdb --output DB",
    **dict.fromkeys(("convert_imageset", "convert_mnist_data", "convert_cifar_data"), "ingest SOURCE --output D"),
    **dict.fromkeys(
        ("upgrade_net_proto_text", "upgrade_net_proto_binary", "upgrade_solver_proto_text"),
        "upgrade FILE --output FILE",
    ),
}
"""Caffe's tool -> the command here."""
_NAMES: Mapping[str, Callable[[], Sequence[str]]] = {
    "strategy": strategy_names,
    "strategy or auto": strategy_choices,
}
"""Mark ``one_of`` of a field -> names from a registry, which the field's type lacks."""
_METAVARS: dict[Any, str] = {
    WorkerRange: "LEAST..MOST|auto",
    int: "INTEGER",
    float: "NUMBER",
    Path: "PATH",
    StorePath: "PATH",
    tuple[Path, ...]: "PATH,...",
}


class MainCommand(typer.core.TyperGroup):
    """The command ``deepspark``: says how Caffe's tools are called here."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command of ``args``; refuse the name of a tool of Caffe."""
        tool = args[0].removesuffix(".bin")
        if tool in _CAFFE_TOOLS:
            ctx.fail(f"{tool} is Caffe's: write {ctx.command_path} {_CAFFE_TOOLS[tool]}")
        return super().resolve_command(ctx, args)


class StageCommand(typer.core.TyperCommand):
    """A command that says how Caffe's flags are written here: ``-solver``, ``-weights``, ``-snapshot``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read ``args``; refuse the name of an argument, and an option's name with a single dash."""
        arguments = [str(param.name) for param in self.params if param.param_type_name == "argument"]
        option_names = {name for param in self.params for name in param.opts if param.param_type_name == "option"}
        written = {arg.partition("=")[0] for arg in args if arg.startswith("-")}
        hints = []
        for option in sorted(written - option_names):
            field = option.lstrip("-").replace("-", "_")
            field = _CAFFE_NAMES.get(field, field)
            name = f"--{field.replace('_', '-')}"
            if field in arguments:
                hints.append(f"{option} is no option: write {ctx.command_path} {' '.join(arguments).upper()}")
            elif name in option_names:
                hints.append(f"{option} is no option: write {name}")
            elif hint := solver_field_hint(field, {str(param.name) for param in self.params}):
                hints.append(f"{option} is no option: {hint.replace('give overrides=', 'write --overrides ')}")
        if hints:
            ctx.fail("\n".join(hints))
        return super().parse_args(ctx, args)


def with_options(
    run: Callable[..., None],
    model: type[Config],
    *,
    positional: str | Sequence[str],
    flags: Mapping[str, str] | None = None,
    names: Mapping[str, Sequence[str]] | None = None,
) -> Callable[..., None]:
    """Return a function for ``typer``: takes the fields of ``model`` as options and passes the config to ``run``.

    A nested config stands for the fields of the config, and is None if all these fields are unset.

    Args:
        run: Function of the config, with absolute paths, and the flags as keywords; its docstring is the help text.
        model: Declares the options; its validators word the errors of values (ConfigError).
        positional: Field, or fields in order, with a position instead of an option name.
        flags: Further switches outside the config, name -> help.
        names: Names of a field's option in the place of its own; a field without names has no option.
    """
    flags, names = dict(flags or {}), names or {}
    positions = [positional] if isinstance(positional, str) else list(positional)
    fields = flat_fields(model)

    def command(**values: Any) -> None:
        switches = {flag: bool(values.pop(flag)) for flag in flags}
        config_values = {
            name: _plain_value(value, fields[name])
            for name, value in values.items()
            if value is not None and value != []
        }
        run(with_paths_from(config_from_fields(model, config_values), Path.cwd()), **switches)

    parameters = [_argument(field, model.model_fields[field]) for field in positions]
    for field, info in model.model_fields.items():
        if field in positions or names.get(field) == ():
            continue
        part = nested_config(info)
        if part is None:
            parameters.append(_option(field, info, names=names.get(field, _option_names(field))))
        else:
            panel = info.description or field
            parameters += [
                _option(name, part_info, names=_option_names(name), panel=panel)
                for name, part_info in part.model_fields.items()
            ]
    parameters += [
        _keyword(flag, bool, typer.Option(False, f"--{flag.replace('_', '-')}", help=text))
        for flag, text in flags.items()
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__doc__ = run.__doc__
    return command


def _argument(name: str, info: FieldInfo) -> inspect.Parameter:
    """Return a positional argument; the model reports a missing argument, since another option may suffice."""
    extra = info.json_schema_extra
    common: dict[str, Any] = {"metavar": name.upper(), "help": _help(info), "show_default": False}
    if isinstance(extra, dict) and extra.get("may_be_left_out"):
        return _keyword(name, str | None, typer.Argument(None, **common))
    return _keyword(name, str, typer.Argument(**common))


def _option_names(field: str) -> Sequence[str]:
    name = f"--{field.replace('_', '-')}"
    return (name, _SHORT_NAMES[field]) if field in _SHORT_NAMES else (name,)


def _option(name: str, info: FieldInfo, *, names: Sequence[str], panel: str | None = None) -> inspect.Parameter:
    """Return a click option of type text: the model converts the text and words the errors.

    Options in a separate ``panel`` are all optional together, so no single option is required.
    """
    extra = info.json_schema_extra
    is_main = (isinstance(extra, dict) and extra.get("form") == "basic") or Path in plain_members(info.annotation)
    common: dict[str, Any] = {
        "help": _help(info),
        "rich_help_panel": panel or (_MAIN_PANEL if is_main else _REST_PANEL),
        "show_default": False,
    }
    if info.annotation is bool:
        negated = names[0].replace("--", "--no-", 1)
        return _keyword(name, bool | None, typer.Option(None, f"{names[0]}/{negated}", **common))
    if isinstance(extra, dict) and extra.get("repeatable"):
        return _keyword(name, list[str] | None, typer.Option(None, *names, metavar=_metavar(info), **common))
    is_required = info.is_required() and panel is None
    option = typer.Option(... if is_required else None, *names, metavar=_metavar(info), **common)
    return _keyword(name, str if is_required else str | None, option)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _plain_value(value: str | bool | list[str], info: FieldInfo) -> str | bool | int | float | list[str]:
    """Return a number if the field takes numbers and the text is a number; messages show the user's text."""
    kinds = plain_members(info.annotation)
    for kind in (int, float):
        if isinstance(value, str) and kind in kinds:
            with suppress(ValueError):
                return kind(value)
    return value


def _help(info: FieldInfo) -> str:
    text = info.description or ""
    extra = info.json_schema_extra
    if isinstance(extra, dict) and (registry := extra.get("one_of")):
        text += f"; one of {', '.join(_NAMES[str(registry)]())}"
    if bounds := _bounds(info):
        text += f" ({bounds})"
    if not info.is_required() and info.default not in (None, "", ()):
        shown = ("yes" if info.default else "no") if isinstance(info.default, bool) else info.default
        text += f" [default: {shown}]"
    return escape(text)


def _metavar(info: FieldInfo) -> str:
    words: list[str] = []
    for plain in plain_members(info.annotation):
        if get_origin(plain) is Literal:
            words += [str(word) for word in get_args(plain)]
        else:
            words.append(_METAVARS.get(plain, "TEXT"))
    return "|".join(dict.fromkeys(words))


def _bounds(info: FieldInfo) -> str:
    """Return a numeric field's bounds in words, e.g. ``1 to 10000`` or ``above 0``."""
    marks = list(info.metadata)
    for member in union_members(info.annotation):
        for mark in getattr(member, "__metadata__", ()):
            marks += mark.metadata if isinstance(mark, FieldInfo) else [mark]
    bounds: dict[str, Any] = {}
    for mark in marks:
        for kind in (annotated_types.Ge, annotated_types.Gt, annotated_types.Le, annotated_types.Lt):
            if isinstance(mark, kind):
                bounds[kind.__name__] = getattr(mark, kind.__name__.lower())
    if "Ge" in bounds and "Le" in bounds:
        return f"{bounds['Ge']} to {bounds['Le']}"
    words = {"Ge": "at least", "Gt": "above", "Le": "at most", "Lt": "below"}
    return ", ".join(f"{words[kind]} {bound}" for kind, bound in bounds.items())
