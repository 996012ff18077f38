"""``make test-quick`` collects its tests without the frameworks that no quick test needs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.unimported_files import UnimportedFiles, excluded_marks, marks_of_file

QUICK_MARKS = re.search(r'-m "(not \(.*\))"', (ROOT / "Makefile").read_text(encoding="utf-8"))
HIDDEN_TENSORFLOW = """
import sys
sys.modules["tensorflow"] = sys.modules["keras"] = None
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


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
        ("caffe_import/tf_graph/padding.py", {"unit", "tf"}),
        ("deepspark_ops/sizes.py", {"unit"}),
    ],
)
def test_marks_of_a_file_are_those_of_its_folder_its_line_and_its_imports(path: str, marks: set[str]) -> None:
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


@pytest.mark.slow
def test_quick_tests_are_collected_without_tensorflow() -> None:
    assert QUICK_MARKS is not None
    options = ("-p", "no:xdist", "-p", "no:cacheprovider", "--collect-only", "-m", QUICK_MARKS[1])
    completed = subprocess.run(
        [sys.executable, "-c", HIDDEN_TENSORFLOW, *options],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert completed.returncode == 0, completed.stdout[-3000:]
