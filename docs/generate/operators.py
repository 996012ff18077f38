"""The stub file of the operators and the page with their arguments, from the config models."""

from __future__ import annotations

import inspect
import textwrap
from typing import Any

from deepspark_ops import operators
from deepspark_ops.api.signatures import type_text
from deepspark_ops.operators.tasks.spark_stage import SparkStageOperator
from deepspark_ops.operators.tasks.stage_arguments import StageArguments, argument_fields

IN_PAGE = ("Check", "Ingest", "Train", "Evaluate", "Export", "Promote", "Convert", "Predict")
_HEAD = '''"""Written by docs/generate/operators.py (make format) from the config models; do not edit."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from os import PathLike
from typing import Any, Literal

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Asset, BaseOperator, XComArg

from deepspark_ops.operators.form import form_params as form_params
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.operators.tasks.stage_arguments import form_templates as form_templates

OPERATOR_MODULES: list[str]
StrPath = str | PathLike[str]
Template = str | XComArg
"""A text with a template of Airflow's, or the output of another task."""
'''
_COLUMNS = 112
_PAGE_HEAD = """<!-- Written by docs/generate/operators.py (make format); do not edit. -->
# Operators

[The guide](../guides/operators.md) shows DAGs with these operators.
Each argument is a template, and takes the output of another task.
"""


def classes() -> list[Any]:
    """Return the operators by name."""
    return [getattr(operators, name) for name in operators.__all__ if name.startswith("DeepSpark")]


def stub() -> str:
    """Return the text of the stub file."""
    return "\n".join([_HEAD, *(_class_text(kind) for kind in classes())])


def _class_text(kind: Any) -> str:
    base = next(
        base.__name__ for base in kind.__mro__ if not issubclass(base, StageArguments) and base.__name__ != "object"
    )
    lines = [f"class {kind.__name__}({base}):", _indented(f'"""{inspect.getdoc(kind)}\n"""', 4), ""]
    lines += ["    def __init__(", "        self,", "        *,", "        task_id: str,"]
    fields = argument_fields(kind)
    for name, parameter in _parameters(kind).items():
        if name in fields:
            text = f"{type_text(fields[name]).removesuffix(' | None')} | Template"
            default = "" if name in kind.required else " | None = None"
            lines.append(f"        {name}: {text}{default},")
        else:
            lines.append(f"        {name}: {parameter.annotation}{_default_text(parameter.default)},")
    described = [f"{name}: {text}" for name, text in _described(kind)]
    doc = '"""Take the arguments.\n\nArgs:\n' + "\n".join(_wrapped(text) for text in described) + '\n"""'
    return "\n".join([*lines, "        **kwargs: Any,", "    ) -> None:", _indented(doc, 8), ""])


def _default_text(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return ""
    return f" = {value!r}" if value is None or isinstance(value, bool | int | float | str) else " = ..."


def _parameters(kind: Any) -> dict[str, inspect.Parameter]:
    named = inspect.signature(kind.__init__).parameters.values()
    more = inspect.signature(SparkStageOperator.__init__).parameters if issubclass(kind, SparkStageOperator) else {}
    found = {one.name: one for one in named if one.kind is one.KEYWORD_ONLY}
    return found | {name: more[name] for name in ("conn_id",) if name in more}


def _described(kind: Any) -> list[tuple[str, str]]:
    fields = argument_fields(kind)
    return [(name, fields[name].description or "") for name in _parameters(kind) if name in fields] + _own(kind)


def _own(kind: Any) -> list[tuple[str, str]]:
    """Return the arguments that are no fields, with what constructors' docstrings say of them."""
    texts: dict[str, str] = {}
    for owner in kind.__mro__:
        if not issubclass(owner, StageArguments):
            continue
        section = (inspect.getdoc(owner.__init__) or "").partition("Args:\n")[2]
        current = ""
        for line in section.partition("\n\n")[0].splitlines():
            name, mark, text = line.strip().partition(": ")
            if mark and line.startswith("    ") and not line.startswith("     "):
                current = name if name not in texts else ""
                if current:
                    texts[current] = text
            elif current:
                texts[current] += " " + line.strip()
    fields = argument_fields(kind)
    return [(name, texts.get(name, "")) for name in _parameters(kind) if name not in fields]


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _COLUMNS, initial_indent=" " * 4, subsequent_indent=" " * 8)


def _indented(text: str, columns: int) -> str:
    return textwrap.indent(text, " " * columns)


def page() -> str:
    """Return the page: each operator with its arguments."""
    parts = [_PAGE_HEAD]
    for kind in (getattr(operators, f"DeepSpark{stage}Operator") for stage in IN_PAGE):
        about = " ".join(inspect.getdoc(kind).partition("Example:")[0].split())
        rows = [
            f"| `{name}`{' (needed)' if name in kind.required else ''} | {' '.join(text.split())} |\n".replace(
                "$", "\\$"
            )
            for name, text in _described(kind)
        ]
        parts.append(f"## {kind.__name__}\n\n{about}\n\n| argument | meaning |\n| --- | --- |\n" + "".join(rows))
    return "\n".join(parts)
