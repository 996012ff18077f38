"""Leaves out files whose tests the marks deselect: to import TensorFlow and Airflow costs more than the quick tests."""

from __future__ import annotations

import re
import sys
from collections.abc import Generator, Set
from functools import cache
from pathlib import Path

import pytest

from tests.paths import ROOT

KINDS = ("architecture", "unit", "parity", "integration", "e2e")
"""Folders of tests/; each is a mark, too."""
_FRAMEWORKS = {"airflow": "airflow", "spark": "pyspark", "tf": r"tensorflow|caffe_import\.tf_graph|[\w.]+\.tf_\w+"}
_FRAMEWORK_IMPORTS = {
    mark: re.compile(rf"^(?:from|import) (?:{modules})\b", re.MULTILINE) for mark, modules in _FRAMEWORKS.items()
}
"""Mark -> the imports that give the mark to the examples in a module."""
_EXCLUSION = re.compile(r"not \((?P<names>\w+( or \w+)*)\)|(?P<each>not \w+( and not \w+)*)")
_MODULE_MARKS = re.compile(r"^pytestmark = (\[.*?\]$|.*?$)", re.MULTILINE | re.DOTALL)


class UnimportedFiles:
    """Ignores a module without examples, and a test file without a selected test; no other file imports TensorFlow."""

    def __init__(self, mark_expression: str) -> None:
        self._excluded = excluded_marks(mark_expression)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Ignore the file or the folder; otherwise leave the answer to others."""
        if collection_path.is_dir():
            return True if kind_of_path(collection_path) in self._excluded else None
        if collection_path.suffix != ".py":
            return None
        is_test_file = collection_path.is_relative_to(ROOT / "tests")
        if not is_test_file and b">>>" not in collection_path.read_bytes():
            return True
        return True if self._excluded & marks_of_file(collection_path) else None

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Fail the file that imports TensorFlow where marks deselect the tests with TensorFlow."""
        was_imported = "tensorflow" in sys.modules
        report = yield
        if "tf" in self._excluded and not was_imported and "tensorflow" in sys.modules:
            report.outcome = "failed"
            report.longrepr = f"{collector.nodeid} imports TensorFlow, and its tests do not have the mark tf"
        return report


def excluded_marks(expression: str) -> Set[str]:
    """Name the marks that each deselect a test; an expression that also asks for marks gives no mark."""
    if not _EXCLUSION.fullmatch(expression):
        return frozenset()
    return frozenset(re.findall(r"\w+", expression)) - {"not", "and", "or"}


def marks_of_file(path: Path) -> Set[str]:
    """Name the marks that each test of a file has."""
    text = path.read_text(encoding="utf-8")
    if not path.is_relative_to(ROOT / "tests"):
        marks = {mark for mark, imports in _FRAMEWORK_IMPORTS.items() if imports.search(text)}
        return marks | {kind_of_path(path)} | ({"tf"} if "tf_graph" in path.parts else set())  # the package imports it
    module_marks = _MODULE_MARKS.search(text)
    return {kind_of_path(path), *re.findall(r"mark\.(\w+)", module_marks[1] if module_marks else "")}


@cache
def kind_of_path(path: Path) -> str:
    """Name the folder of tests/ that holds a path; examples in the packages are unit tests."""
    folders = path.relative_to(ROOT / "tests").parts if path.is_relative_to(ROOT / "tests") else ()
    return folders[0] if folders and folders[0] in KINDS else "unit"
