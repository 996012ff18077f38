"""The stub file calls.pyi and the page of the Python API, from the config models and docstrings."""

from __future__ import annotations

import inspect
import re
import typing

import deepspark_ops
from deepspark_ops.api import calls
from deepspark_ops.api.pycaffe import Solver
from deepspark_ops.api.results.dataset import Samples
from deepspark_ops.api.signatures import stub_text

FUNCTIONS = ("check", "ingest", "train", "evaluate", "export", "predict", "compare", "simulate", "convert", "pack")
CLASSES = (
    "Run", "Dataset", "Samples", "Bundle", "Model", "Evaluation", "Predictions", "Comparison", "Simulation",
    "CheckReport", "WorkerArchive", "Net", "Solver",
)  # fmt: skip
_HEAD = '''"""Written by docs/generate/python.py (make format) from the config models; do not edit."""

from collections.abc import Sequence
from typing import Literal

{imports}
'''
_PAGE_HEAD = """<!-- Written by docs/generate/python.py (make format); do not edit. -->
# Python API

[The guide](../guides/python.md) shows how to use the functions and classes. `help(ds.train)` explains each argument;
[Commands](commands.md) has the same texts, since arguments are the options of the commands.
"""


def stub() -> str:
    """Return the text of calls.pyi."""
    results = {name: _result(name) for name in FUNCTIONS}
    imports = sorted(
        {f"from {kind.__module__} import {kind.__name__}" for kind in results.values()}
        | {"from deepspark_ops.api.results.result_folder import StrPath"}
    )
    functions = [stub_text(name, getattr(calls, name), results[name].__name__) for name in FUNCTIONS]
    return _HEAD.format(imports="\n".join(imports)) + "\n" + "\n\n".join(functions) + "\n"


def _result(name: str) -> type:
    run = inspect.unwrap(getattr(calls, name))
    return typing.get_type_hints(run)["return"]


def page() -> str:
    """Return the page: each function with its arguments, each class with its members."""
    parts = [_PAGE_HEAD, "## Functions\n"]
    for name in FUNCTIONS:
        function = getattr(deepspark_ops, name)
        parameters = inspect.signature(function).parameters.values()
        required = [one.name for one in parameters if one.default is inspect.Parameter.empty]
        others = [f"`{one.name}`" for one in parameters if one.default is not inspect.Parameter.empty]
        first_line = (function.__doc__ or "").splitlines()[0]
        result = _result(name).__name__
        call = f"ds.{name}({', '.join(required)}, ...)"
        parts.append(f"### ds.{name}\n\n`{call}` returns `{result}`. {first_line}\n\nFurther: {', '.join(others)}.\n")
    parts.append("## Classes\n")
    for kind in _classes():
        first_line = (kind.__doc__ or "").splitlines()[0]
        rows = [f"| `{name}` | {text} |\n" for name, text in _members(kind)]
        parts.append(f"### {kind.__name__}\n\n{first_line}\n\n| member | meaning |\n| --- | --- |\n" + "".join(rows))
    return "\n".join(parts)


def _classes() -> list[type]:
    kinds = {_result(name) for name in FUNCTIONS} | {Samples, Solver, deepspark_ops.Model, deepspark_ops.Net}
    by_name = {kind.__name__: kind for kind in kinds}
    if set(by_name) != set(CLASSES):
        msg = f"classes of the reference: {sorted(by_name)}, expected {sorted(CLASSES)}"
        raise ValueError(msg)
    return [by_name[name] for name in CLASSES]


def _members(kind: type) -> list[tuple[str, str]]:
    found = []
    for owner in reversed(kind.__mro__[:-1]):
        for name in [*getattr(owner, "__annotations__", {}), *vars(owner)]:
            member = inspect.getattr_static(kind, name, None)
            if name.startswith("_") or isinstance(member, classmethod) or name in ("kind", "written_by"):
                continue
            is_method = inspect.isfunction(member)
            documented = member.fget if isinstance(member, property) else member if is_method else None
            text = inspect.getdoc(documented) if documented else _field(kind, name)
            first_line = (text or "").partition("\n")[0]
            found.append((f"{name}()" if is_method else name, first_line.replace("|", "\\|")))
    attributes = re.findall(r"^    (\w+): ", inspect.cleandoc(kind.__doc__ or "").partition("Attributes:")[2], re.M)
    listed = {name for name, _ in found}
    return [*((name, _field(kind, name)) for name in attributes if name not in listed), *dict.fromkeys(found)]


def _field(kind: type, name: str) -> str:
    """Return what a class's docstrings say of one of its attributes, up to the end of its paragraph."""
    for owner in kind.__mro__:
        lines = inspect.cleandoc(owner.__doc__ or "").splitlines()
        for at, line in enumerate(lines):
            if line.strip().startswith(f"{name}: "):
                rest = [more.strip() for more in lines[at + 1 :]]
                stop = next((k for k, more in enumerate(lines[at + 1 :]) if not more.startswith(" " * 8)), len(rest))
                return " ".join([line.strip().removeprefix(f"{name}: "), *rest[:stop]])
    return ""
