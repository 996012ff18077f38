"""Names describe their content: the share of vague names, such as ``found`` or ``given``, has a bound per folder.

A reader can search for ``missing_columns`` or ``reject_reason``, but not for ``found``. CONTRIBUTING.md, "Plain words",
lists better names.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT

VAGUE = frozenset(
    """
    after again alike alone apart asked before beside done far found given here kept known left like made many meant
    much near one others ours own place places rest said says seen some taken tells theirs there thing things told
    wanted way what who whole
    """.split()
)
REACHED = 0.3
"""Allowed percentage of vague names in a folder of a package or of the tests."""
BOUNDS = {
    # ``who`` and ``asked`` are fields of files on disk.
    "deepspark_ops/registry": 0.7,
    # ``places`` is an argument of the operators; ``_before`` and ``_done`` are state of the training.
    "deepspark_ops/operators": 0.7,
    "deepspark_ops/train": 0.5,
}
"""Folder -> allowed percentage, if different from ``REACHED``."""


def named_folders() -> list[str]:
    """Return both packages and the tests, for the modules directly inside, and each folder below."""
    roots = [ROOT / "deepspark_ops", ROOT / "caffe_import", ROOT / "tests"]
    folders = [folder for root in roots for folder in sorted(root.iterdir()) if any(folder.rglob("*.py"))]
    return [str(folder.relative_to(ROOT)) for folder in (*roots, *folders) if folder.name != "proto"]


def modules_of(named_folder: str) -> list[Path]:
    folder = ROOT / named_folder
    return sorted(folder.glob("*.py")) if folder.parent == ROOT else sorted(folder.rglob("*.py"))


def names_in(tree: ast.AST) -> Iterator[str]:
    """Yield every name that the code gives: variables, arguments, attributes, functions and classes."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name


def is_vague(name: str) -> bool:
    return name.strip("_").lower() in VAGUE


SOURCE = """
class Told:
    def kept(self, one, shard_path):
        self._found = [row for row in one]
        return missing_rows
"""


def test_vague_names_are_recognised() -> None:
    names = list(names_in(ast.parse(SOURCE)))
    assert sorted(names) == ["Told", "_found", "kept", "one", "row", "self", "shard_path"]  # no name that is only read
    assert sorted(filter(is_vague, names)) == ["Told", "_found", "kept", "one"]


@pytest.mark.parametrize("folder", named_folders())
def test_names_of_a_folder_describe_their_content(folder: str) -> None:
    n_names, vague = 0, []
    for path in modules_of(folder):
        names = list(names_in(ast.parse(path.read_text(encoding="utf-8"))))
        n_names += len(names)
        vague += [f"{path.relative_to(ROOT)}: {name}" for name in names if is_vague(name)]
    share = 100 * len(vague) / max(1, n_names)
    bound = BOUNDS.get(folder, REACHED)
    assert share <= bound, (
        f"{folder}: {len(vague)} of {n_names} names ({share:.2f} %) are vague; allowed: {bound} %. Name the content, "
        f"such as missing_columns or reject_reason (CONTRIBUTING.md, Plain words): {', '.join(vague[:20])}"
    )


def test_bounds_are_of_existing_folders() -> None:
    assert set(BOUNDS) <= set(named_folders())


def helper_names() -> dict[str, set[str]]:
    """Return name -> files of the functions at the top of modules in ``tests/`` that are no tests and no fixtures."""
    files: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.FunctionDef) or node.name.startswith(("test_", "pytest_", "main")):
                continue
            if not any("fixture" in ast.unparse(decorator) for decorator in node.decorator_list):
                files.setdefault(node.name, set()).add(str(path.relative_to(ROOT)))
    return files


def test_no_helper_has_the_same_name_in_four_test_files() -> None:
    repeated = {name: sorted(files) for name, files in helper_names().items() if len(files) >= 4}
    assert repeated == {}, (
        "helpers with one job are a function in tests/reference or a fixture of a conftest.py; helpers with different "
        f"jobs have the names of their values: {repeated}"
    )
