"""Parts with a hidden framework: one message that names the extra, exit code 2 of the process."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from caffe_import.extras import EXTRAS, MissingExtra, missing_extra, require
from tests.paths import ROOT

HIDE = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in {packages!r} else found(name, package)
"""
"""What a Python without these packages does, for the start of a program."""


def run_without(packages: set[str], code: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HIDE.format(packages=packages) + code, *arguments]
    environment = {**os.environ, **variables}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)


def test_every_extra_named_is_one_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(EXTRAS.values()) <= set(project["optional-dependencies"])


@pytest.mark.parametrize("package", ["tensorflow", "pyspark", "airflow", "airflow.providers.apache.spark"])
def test_installed_package_is_not_refused(package: str) -> None:
    require(package, part="a part")


def test_provider_that_is_not_on_the_path_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ModuleNotFoundError, match=r'operators needs airflow\.providers.*"deepspark\[airflow\]"'):
        require("airflow.providers.apache.spark", part="deepspark_ops.operators")


def test_import_of_a_part_names_its_extra() -> None:
    completed = run_without({"tensorflow"}, "import caffe_import.tf_graph.builder")
    assert completed.stderr.splitlines()[-1] == (
        "caffe_import.extras.MissingExtra: caffe_import.tf_graph needs tensorflow,"
        f' which {sys.executable} does not have: pip install "deepspark[train]"'
    )
    completed = run_without({"airflow"}, "import deepspark_ops.operators.train")
    assert "deepspark_ops.operators needs airflow, which" in completed.stderr.splitlines()[-1]
    assert 'pip install "deepspark[airflow]"' in completed.stderr.splitlines()[-1]


def test_failed_import_of_ours_names_the_module_that_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.delitem(sys.modules, "deepspark_ops.ingest.spark_job", raising=False)
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module("deepspark_ops.ingest.spark_job")
    message = missing_extra(caught.value)
    assert message is not None
    assert message.startswith("deepspark_ops.ingest.spark_job needs pyspark, which")
    assert message.endswith('pip install "deepspark[spark]"')


def test_other_packages_are_no_extra_of_ours() -> None:
    assert missing_extra(ModuleNotFoundError("No module named 'yaml'", name="yaml")) is None
    assert "[tables]" in (missing_extra(ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")) or "")
    assert missing_extra(ModuleNotFoundError("said without a name")) is None


SOURCE = ["--source", "examples/digits/digits8x8-images-idx3-ubyte.gz", "--resize-height", "28", "--resize-width", "28"]
COMMAND = "from deepspark_ops.command.cli import main; main()"


@pytest.mark.parametrize(
    ("package", "extra", "arguments"),
    [
        ("pyspark", "spark", ["ingest", "examples/digits/digits8x8-images-idx3-ubyte.gz", "--output", "/dev/null/x"]),
        (
            "pyspark",
            "spark",
            ["train", "examples/digits/lenet_solver.prototxt", "--engine", "spark", "--run-dir", "/dev/null/x"],
        ),
        ("tensorflow", "train", ["check", "examples/digits/lenet_solver.prototxt", "--parity"]),
        ("airflow", "airflow", ["ui"]),
        ("pyspark", "spark", ["demo"]),
    ],
    ids=["ingest", "train", "check", "ui", "demo"],
)
@pytest.mark.slow  # starts processes
def test_command_says_it_in_one_message(package: str, extra: str, arguments: list[str], tmp_path: Path) -> None:
    # TensorFlow is not needed for cases that have passed on this host before; their file is below TMPDIR.
    completed = run_without({package}, COMMAND, *arguments, TMPDIR=str(tmp_path))
    assert completed.returncode == 2, completed.stderr
    assert "Traceback" not in completed.stderr
    assert f'pip install "deepspark[{extra}]"' in completed.stderr


def test_missing_packages_of_a_part_are_named_together(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("tensorflow", "pyspark"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=r'^it needs tensorflow and pyspark, .*"deepspark\[spark,train\]"$'):
        require("tensorflow", "numpy", "pyspark", part="it")


@pytest.mark.parametrize(
    ("command", "options"), [("check", SOURCE), ("plan", ["--workers", "1,4"])], ids=["check", "plan"]
)
@pytest.mark.slow  # starts processes
def test_solver_is_read_without_any_framework(command: str, options: list[str]) -> None:
    hidden = {"airflow", "jinja2", "keras", "py4j", "pyarrow", "pyspark", "tensorflow"}
    completed = run_without(hidden, COMMAND, command, "examples/digits/lenet_solver.prototxt", *options)
    assert completed.returncode == 0, completed.stderr


@pytest.mark.parametrize("stage", ["evaluate", "export"])
@pytest.mark.slow  # starts processes
def test_stage_process_says_it_in_one_message(stage: str, tmp_path: Path) -> None:
    # The first sample, the net, all else of the run is never looked at: the import comes before.
    code = f"import runpy; runpy.run_module('deepspark_ops.{stage}', run_name='__main__', alter_sys=True)"
    config = tmp_path / "config.json"
    weights = tmp_path / "net.caffemodel"
    weights.touch()
    config.write_text(f'{{"run_dir": "{tmp_path}", "weights": "{weights}"}}')
    completed = run_without({"tensorflow"}, code, str(config))
    assert (completed.returncode, completed.stderr.count("Traceback")) == (2, 0), completed.stderr
    assert 'pip install "deepspark[train]"' in completed.stderr


def test_comparison_with_caffe_says_it_too() -> None:
    code = "import runpy; runpy.run_module('caffe_import.parity', run_name='__main__', alter_sys=True)"
    completed = run_without({"tensorflow"}, code)
    assert completed.returncode == 2
    assert 'pip install "deepspark[train]"' in completed.stderr.splitlines()[-1]


@pytest.mark.tf
def test_executor_needs_tensorflow_and_the_base_alone() -> None:
    hidden = {"airflow", "jinja2", "markupsafe", "pandas", "plotly", "pyarrow", "py4j", "pyspark", "typer"}
    # What TensorFlow's import made stays, and no collection of garbage looks through it again.
    frozen = "; import gc; assert gc.isenabled(); assert gc.get_freeze_count() > 100_000, gc.get_freeze_count()"
    # TensorFlow's import leaves out Keras until a first use.
    keras = "; import sys; assert 'keras' not in sys.modules; import keras.src.optimizers"
    imports = "import deepspark_ops.train.worker.process, deepspark_ops.ingest.shard_task"
    completed = run_without(hidden, imports + frozen + keras)
    assert completed.returncode == 0, completed.stderr
    hidden |= {"tensorflow", "keras", "pydantic", "pydantic_core", "rich"}
    completed = run_without(hidden, "import deepspark_ops.exchange.server.process")
    assert completed.returncode == 0, completed.stderr
