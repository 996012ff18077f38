"""``make test-quick`` collects its tests without frameworks that quick tests do not need."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.paths import ROOT
from tests.unimported_files import UnimportedFiles, excluded_marks, marks_of_file


@pytest.mark.parametrize(
    ("expression", "marks"),
    [
        ("not (tf or slow)", {"tf", "slow"}),
        ("not tf and not long", {"tf", "long"}),
        ("not tf", {"tf"}),
        ("cluster and not slow", set()),
        ("not (tf and slow)", set()),
        ("", set()),
    ],
)
def test_only_a_mark_that_deselects_a_test_by_itself_is_excluded(expression: str, marks: set[str]) -> None:
    assert excluded_marks(expression) == marks


@pytest.mark.parametrize(
    ("path", "marks"),
    [
        ("tests/unit/caffe_import/layers/test_lrn.py", {"unit", "tf"}),
        ("tests/integration/train/test_cluster.py", {"integration", "cluster", "tf", "spark", "slow"}),
        ("tests/architecture/test_quick_tests.py", {"architecture"}),
        ("deepspark_ops/operators/tasks/run_note.py", {"unit", "airflow"}),
        ("deepspark_ops/spark_ml/model.py", {"unit", "spark"}),
        ("caffe_import/tf_graph/operations/padding.py", {"unit", "tf"}),
        ("deepspark_ops/sizes.py", {"unit"}),
    ],
)
def test_a_file_has_the_marks_of_folder_line_and_imports(path: str, marks: set[str]) -> None:
    assert marks_of_file(ROOT / path) == marks


def test_a_file_is_left_out_only_if_no_test_can_be_selected(tmp_path: Path) -> None:
    quick = UnimportedFiles("not (tf or integration)")
    assert quick.pytest_ignore_collect(ROOT / "tests/integration")
    assert quick.pytest_ignore_collect(ROOT / "tests/unit/caffe_import/layers/test_lrn.py")
    assert quick.pytest_ignore_collect(ROOT / "tests/unit") is None
    assert quick.pytest_ignore_collect(ROOT / "deepspark_ops/sizes.py") is None
    assert quick.pytest_ignore_collect(ROOT / "deepspark_ops/errors.py"), "no example"
    every = UnimportedFiles("tf")
    assert every.pytest_ignore_collect(ROOT / "tests/integration") is None
    assert every.pytest_ignore_collect(ROOT / "tests/unit/caffe_import/layers/test_lrn.py") is None


@pytest.mark.parametrize(("marks", "outcome"), [("not (tf or slow)", "failed"), ("not slow", "passed")])
def test_a_file_that_imports_tensorflow_for_quick_tests_is_an_error(
    marks: str, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    hook = UnimportedFiles(marks).pytest_make_collect_report(SimpleNamespace(nodeid="tests/test_a.py"))
    next(hook)
    monkeypatch.setitem(sys.modules, "tensorflow", ModuleType("tensorflow"))
    with pytest.raises(StopIteration) as stop:
        hook.send(pytest.CollectReport("tests/test_a.py", "passed", None, []))
    assert stop.value.value.outcome == outcome
    assert (stop.value.value.longrepr or "").startswith("tests/test_a.py imports TensorFlow") == (outcome == "failed")


def test_the_quick_tests_deselect_the_tests_of_tensorflow() -> None:
    marks = re.search(r"^QUICK_TESTS := (not \(.*\))$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert marks is not None
    assert "tf" in excluded_marks(marks[1])
