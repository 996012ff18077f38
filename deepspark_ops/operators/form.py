"""The DAGs' forms: Airflow Params generated from the config models, and configs built back from a run's params.

The model marks the fields of the form: ``config.base.FORM`` for the basic part of a section, ``EXPERT`` for rare
changes. Only the models declare types, bounds, defaults, titles and descriptions; a DAG gives the sections and their
order. A field without a default starts empty: the form asks for the value, and task ``check`` refuses a run without the
value.

Airflow opens a single part of a form, "Run Parameters", for Params without a section. So the basic part of the first
section has no section. Airflow refuses a text by a pattern with the regular expression as the reason, so no pattern
goes into the form: task ``check`` says the sentence instead.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import Param

from deepspark_ops.config.base import Config, StageConfig, parse_config, with_paths_from
from deepspark_ops.errors import ConfigError

Section = tuple[str, type[StageConfig]]
"""Title of a part of the form and the model whose fields it holds."""

_COPIED = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def form_params(
    sections: Sequence[Section],
    defaults: Mapping[str, Any] | None = None,
    *,
    optional: Sequence[str] = (),
    choices: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Param]:
    """Return the Params of a DAG: the basic parts of all sections, then the expert parts, fields in the models' order.

    A field of two sections (the solver of check and train) is in the first section only, with the same meaning in both.

    Args:
        sections: Parts of the form.
        defaults: Values that take the place of the models' defaults in this DAG. JSON values.
        optional: Fields that may be left empty though their model needs them, since the stage is then left out.
        choices: Values of text fields whose choice a registry knows and the model does not.

    Raises:
        ValueError: Two sections disagree about a field, or a default is for no field.
    """
    defaults = defaults or {}
    params: dict[str, Param] = {}
    schemas: dict[str, dict[str, Any]] = {}
    for title, model in sections:
        for name, schema in form_schemas(model).items():
            if name in schemas:
                if schemas[name] != schema:
                    msg = f"form field {name}: {model.__name__} and an earlier section declare it differently"
                    raise ValueError(msg)
                continue
            schemas[name] = schema
            keywords = {key: value for key, value in schema.items() if key not in ("default", "form")}
            if name in optional:
                keywords["type"] = [keywords["type"], "null"]
            if choices and name in choices:
                keywords["examples" if _takes_list(schema) else "enum"] = list(choices[name])  # of a list: to tick
            part = _part(title, schema["form"], is_first=title == sections[0][0])
            empty = None if "null" in keywords["type"] else ""
            params[name] = Param(defaults.get(name, schema.get("default", empty)), **part, **keywords)
    if unused := sorted(set(defaults) - set(params)):
        msg = f"defaults for fields that are in no section of the form: {', '.join(unused)}"
        raise ValueError(msg)
    return dict(sorted(params.items(), key=lambda item: schemas[item[0]]["form"] == "expert"))  # keeps the order else


def _part(title: str, kind: str, *, is_first: bool) -> dict[str, str]:
    if kind == "expert":
        return {"section": f"{title}, expert"}
    return {} if is_first else {"section": title}


def form_schemas(model: type[StageConfig]) -> dict[str, dict[str, Any]]:
    """Return field name -> flat JSON schema (one level, ``type`` a name or a list of names) of a model's form fields.

    Airflow's form shows a widget per field, for the first type except null. So a choice of types, which
    pydantic writes as ``anyOf``, becomes one schema with several types, whose bounds bind numbers. The description ends
    with the field's name in messages, ``conf`` and the command line.
    """
    properties = model.model_json_schema()["properties"]
    return {name: _flat(name, schema) for name, schema in properties.items() if schema.get("form")}


def _flat(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    variants = schema.get("anyOf", [schema])
    types = list(dict.fromkeys(variant["type"] for variant in variants))
    words = [word for variant in variants for word in _words(variant)]
    flat: dict[str, Any] = {key: variant[key] for variant in variants for key in _COPIED if key in variant}
    if "string" in types and {"integer", "number"} & set(types):
        flat["examples"] = [
            *words,
            *schema.get("examples", []),
        ]  # the form takes a field of several types without examples for free JSON
    elif words and any(variant["type"] == "string" and not _words(variant) for variant in variants):
        flat["examples"] = [*words, *schema.get("examples", [])]  # words are proposals where any text may stand
    elif words:
        flat["enum"] = [*words, *([None] if "null" in types else [])]
    if schema.get("default") in ("", []) and "null" not in types:
        types.append("null")  # the form takes an empty text that may not be null for a missing one
    flat["type"] = types[0] if len(types) == 1 else sorted(types, key="null".__eq__)
    flat["title"] = schema["title"]
    flat["description"] = f"{schema['description']} [{name}]"
    flat["form"] = schema["form"]
    if "default" in schema:
        flat["default"] = None if schema["default"] == [] and types[0] == "string" else schema["default"]
    if schema.get("format") == "multiline":
        flat["format"] = "multiline"
    return flat


def _takes_list(schema: Mapping[str, Any]) -> bool:
    return isinstance(schema["type"], list) and schema["type"][0] == "array"


def _words(variant: Mapping[str, Any]) -> list[str]:
    if "const" in variant:
        return [variant["const"]]
    return list(variant.get("enum", []))


def refuse_unknown(conf: Mapping[str, Any] | None, param_names: Sequence[str]) -> None:
    """Refuse unknown keys of a run's conf; Airflow itself accepts the keys silently.

    Raises:
        ConfigError: Names each key and, where one is near, the parameter that may be meant.
    """
    lines = []
    for key in sorted(set(conf or {}) - set(param_names)):
        nearest = difflib.get_close_matches(key, param_names, n=1)
        hint = f'; did you mean "{nearest[0]}"?' if nearest else ""
        lines.append(f'conf has an unknown parameter "{key}"{hint}')
    if lines:
        raise ConfigError("\n".join([*lines, f"allowed: {', '.join(sorted(param_names))}"]))


def config_from_params(model: type[Config], params: Mapping[str, Any], root: Path, **fixed: Any) -> Config:
    """Build a stage's config from plain values.

    Args:
        model: The stage's config model.
        params: The params of a run or the arguments of an operator; others than the model's fields are ignored.
        root: Folder that relative paths are relative to.
        fixed: Values that the operator decides: folders of the run, dataset, master. None leaves what ``params`` has.

    Raises:
        ConfigError: One line per wrong field.
    """
    config_values = {
        name: value for name, value in params.items() if name in model.model_fields and not is_left_out(value)
    }
    config_values |= {name: value for name, value in fixed.items() if value is not None}
    return with_paths_from(parse_config(model, config_values), root)


def is_left_out(value: Any) -> bool:
    """Return whether a value means "not given": a cleared field of the form is null or an empty text."""
    return value is None or (isinstance(value, str) and not value.strip())
