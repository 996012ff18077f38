"""Writes calls.pyi and the reference in docs/python.md from the config models; ``--check`` compares."""

from __future__ import annotations

import inspect
import re
import sys
import typing
from pathlib import Path

import deepspark_ops
from deepspark_ops.api import calls
from deepspark_ops.api.pycaffe import Solver
from deepspark_ops.api.results.dataset import Samples
from deepspark_ops.api.signatures import stub_text

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "python.md"
STUB = ROOT / "deepspark_ops" / "api" / "calls.pyi"
BEGIN = "<!-- reference: begin, written by docs/python_reference.py -->\n"
END = "<!-- reference: end -->"
FUNCTIONS = ("check", "ingest", "train", "evaluate", "export", "predict", "compare", "simulate", "convert")
CLASSES = (
    "Run", "Dataset", "Samples", "Bundle", "Model", "Evaluation", "Predictions", "Comparison", "Simulation",
    "CheckReport", "Net", "Solver",
)  # fmt: skip
_HEAD = '''"""Written by docs/python_reference.py (make format) from the config models; do not edit."""

from collections.abc import Sequence
from typing import Literal

{imports}
'''


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


def reference() -> str:
    """Return the reference in Markdown: each function with its arguments, each class with what it has."""
    parts = []
    for name in FUNCTIONS:
        function = getattr(deepspark_ops, name)
        parameters = inspect.signature(function).parameters.values()
        required = [one.name for one in parameters if one.default is inspect.Parameter.empty]
        others = [f"`{one.name}`" for one in parameters if one.default is not inspect.Parameter.empty]
        first_line = (function.__doc__ or "").splitlines()[0]
        result = _result(name).__name__
        call = f"ds.{name}({', '.join(required)}, ...)"
        parts.append(f"**`{call}`** returns `{result}`. {first_line} Further: {', '.join(others)}.\n")
    for kind in _classes():
        first_line = (kind.__doc__ or "").splitlines()[0]
        rows = [f"| `{name}` | {text} |\n" for name, text in _members(kind)]
        parts.append(f"**`{kind.__name__}`**: {first_line}\n\n| | |\n| --- | --- |\n" + "".join(rows))
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


def updated(text: str) -> str:
    """Return the page's text with the reference of now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{reference()}{END}{after}"


def main() -> int:
    """Rewrite the two files, or check them."""
    new = {PAGE: updated(PAGE.read_text(encoding="utf-8")), STUB: stub()}
    stale = [path for path, text in new.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not what the config models say; run: make format", file=sys.stderr)
        return int(bool(stale))
    for path in stale:
        path.write_text(new[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
