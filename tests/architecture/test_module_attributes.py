"""Tests outside ``make test`` name no attribute that the module lacks: a renamed function fails here at once."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from tests.paths import ROOT
from tests.unimported_files import excluded_marks, marks_of_file

PACKAGES = ("caffe_import", "deepspark_ops", "tests", "benchmarks")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def module_path(name: str) -> Path | None:
    """Return the file of an own module; None for a package, a name in a module, and a module that protobuf makes."""
    path = ROOT / f"{name.replace('.', '/')}.py"
    is_own = name.split(".")[0] in PACKAGES and not name.endswith("_pb2")
    return path if is_own and path.is_file() else None


@cache
def attributes_of(path: Path) -> frozenset[str] | None:
    """Return the names that a module binds at any depth of its statements; None if the module computes names."""
    bound = {"__file__", "__name__", "__doc__", "__dict__"}
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
                if name == "__getattr__":
                    return None
            case ast.Name(id=name, ctx=ast.Store()):
                bound.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                bound.update(alias.asname or alias.name.split(".")[0] for alias in aliases)
    return frozenset(bound)


def imported_modules(nodes: Sequence[ast.AST]) -> dict[str, Path]:
    """Return name -> file of our own module, for each name that one import binds and nothing else binds."""
    modules: dict[str, Path | None] = {}
    non_modules = set()
    for node in nodes:
        match node:
            case ast.Import(names=aliases):
                modules |= {alias.asname: module_path(alias.name) for alias in aliases if alias.asname}
            case ast.ImportFrom(module=str(package), names=aliases, level=0):
                modules |= {alias.asname or alias.name: module_path(f"{package}.{alias.name}") for alias in aliases}
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                non_modules.add(name)
    return {name: path for name, path in modules.items() if path is not None and name not in non_modules}


def missing_attributes(tree: ast.Module) -> Iterator[str]:
    """Yield ``line: module.attribute`` for each attribute that an own module lacks, read or replaced by a test."""
    nodes = list(ast.walk(tree))
    modules = imported_modules(nodes)
    for node in nodes:
        match node:
            case (
                ast.Attribute(value=ast.Name(id=module), attr=attribute, lineno=line)
                | ast.Call(
                    func=ast.Attribute(attr="setattr"),
                    args=[ast.Name(id=module), ast.Constant(value=str(attribute)), *_],
                    lineno=line,
                )
            ) if module in modules:
                bound = attributes_of(modules[module])
                if bound is not None and attribute not in bound:
                    yield f"{line}: {module}.{attribute}"


SOURCE = """
from tests import paths
import tests.paths as other
paths.ROOT
paths.ROOF
monkeypatch.setattr(other, "HOUSE", 1)
unknown.name
def made(shadowed):
    from tests import paths as shadowed
    shadowed.ROOF
"""


def test_a_missing_attribute_is_seen() -> None:
    assert list(missing_attributes(ast.parse(SOURCE))) == ["5: paths.ROOF", "6: other.HOUSE"]


def files_of_other_targets() -> list[Path]:
    """Return the files with a mark that ``make test`` deselects, and the modules shared by tests and benchmarks."""
    pytest_options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]
    deselected = re.search("-m '(.*?)'", pytest_options["ini_options"]["addopts"])
    assert deselected is not None
    marks = excluded_marks(deselected[1])
    files = [path for folder in ("tests", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in files if not path.name.startswith("test_") or marks_of_file(path) & marks]


def test_files_of_other_targets_name_existing_attributes() -> None:
    files = files_of_other_targets()
    assert ROOT / "tests/e2e/test_outage.py" in files
    assert not [f"{path.relative_to(ROOT)}:{line}" for path in files for line in missing_attributes(tree_of(path))]
