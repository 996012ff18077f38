"""A stage's config as a flat list of fields, for the options of commands and Python functions.

A nested config stands for the fields of the config.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from deepspark_ops.config.base import Config, StageConfig, parse_config
from deepspark_ops.errors import ConfigError


def flat_fields(model: type[StageConfig]) -> dict[str, FieldInfo]:
    """Return name -> field of a config and of the nested configs, in order."""
    fields: dict[str, FieldInfo] = {}
    for name, info in model.model_fields.items():
        part = nested_config(info)
        fields |= {name: info} if part is None else part.model_fields
    return fields


def nested_config(info: FieldInfo) -> type[StageConfig] | None:
    """Return the config model of a field; None for a plain field."""
    for member in union_members(info.annotation):
        if isinstance(member, type) and issubclass(member, StageConfig):
            return member
    return None


def config_from_fields(model: type[Config], values: Mapping[str, Any]) -> Config:
    """Return the config of flat values. A nested config without values is None, or the default.

    Raises:
        ConfigError: An unknown field, with the most similar name; or one line per wrong value.
    """
    fields = flat_fields(model)
    for name, value in values.items():
        if name not in fields:
            import difflib  # only for errors: keeps --help fast

            matches = difflib.get_close_matches(name, fields, n=1)
            nearest = f"the nearest is {matches[0]}; " if matches else ""
            nearest = f"{hint}; " if (hint := solver_field_hint(name, fields)) else nearest
            msg = f"{name}={value!r}: no such argument; {nearest}known: {', '.join(fields)}"
            raise ConfigError(msg)
    config_values: dict[str, Any] = {name: value for name, value in values.items() if name in model.model_fields}
    for name, info in model.model_fields.items():
        part = nested_config(info)
        part_values = {field: values[field] for field in part.model_fields if field in values} if part else {}
        if part is not None and part_values:
            config_values[name] = parse_config(part, part_values)
    return parse_config(model, config_values)


def solver_field_hint(name: str, fields: Container[str]) -> str:
    """Return the option for a field of Caffe's solver, such as ``max_iter`` or ``epochs``; empty for other names.

    Args:
        name: Name that is no option.
        fields: Names of the options.
    """
    from caffe_import.other_names import caffe_name  # only for errors
    from caffe_import.proto import caffe_pb2

    solver_fields = caffe_pb2.SolverParameter.DESCRIPTOR.fields_by_name
    field = name if name in solver_fields else caffe_name(name, list(solver_fields))
    if "overrides" not in fields or not field:
        return ""
    called = "" if field == name else f", {field}"
    return f'{name} is a field of the solver{called}: give overrides="{field}: VALUE"'


def union_members(annotation: Any) -> list[Any]:
    """Return the members of a union, without None; for another annotation the annotation itself."""
    if get_origin(annotation) is None or get_origin(annotation) is Literal:
        return [] if annotation is NoneType else [annotation]
    if hasattr(annotation, "__metadata__"):
        return [annotation]
    return [member for part in get_args(annotation) for member in union_members(part)]


def plain_members(annotation: Any) -> list[Any]:
    """Return the members of a union, without what is said of each."""
    plain = [get_args(member)[0] if hasattr(member, "__metadata__") else member for member in union_members(annotation)]
    parts = [get_args(member) if get_origin(member) in (Union, UnionType) else (member,) for member in plain]
    return [member for part in parts for member in part]
