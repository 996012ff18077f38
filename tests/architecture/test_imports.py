"""Light modules start without the heavy frameworks, seen from a fresh interpreter; and the written borders hold."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.fresh_imports import loaded_packages
from tests.paths import ROOT

HEAVY = {"tensorflow", "keras", "pyspark", "airflow", "mlflow"}

LIGHT = [
    "caffe_import.net.net_spec",
    "caffe_import.solver.solver_spec",
    "caffe_import.net.layer_registry",
    "caffe_import.files.caffemodel",
    "caffe_import.data.transform",
    "deepspark_ops.api.calls",
    "deepspark_ops.api.opening",
    "deepspark_ops.api.pycaffe",
    "deepspark_ops.command.cli",
    "deepspark_ops.config.train",
    "deepspark_ops.events",
    "deepspark_ops.evaluate.__main__",
    "deepspark_ops.exchange.server.process",
    "deepspark_ops.export.__main__",
    "deepspark_ops.ingest.shard_task",
    "deepspark_ops.param_vector",
    "deepspark_ops.planning.simulator",
    "deepspark_ops.preflight.inspect_solver",
    "deepspark_ops.planning.plan",
    "deepspark_ops.shards.reader",
    "deepspark_ops.processes.spark_submit",
    "deepspark_ops.api.display.live_view",
    "deepspark_ops.tracking.send",
    "deepspark_ops.tracking.tell",
    "deepspark_ops.train.worker.loop.loop",
    "deepspark_ops.train.snapshots.snapshot",
]


FILES = sorted([*(ROOT / "dags").glob("*.py"), ROOT / "plugins" / "deepspark_plugin.py"])
OPERATORS = ", ".join(
    f"deepspark_ops.operators.{stage}" for stage in ("check", "ingest", "train", "evaluate", "export", "promote")
)


def running(file: Path) -> str:
    return f"import runpy; runpy.run_path({str(file)!r})"


@pytest.fixture(scope="module")
def light() -> dict[str, set[str]]:
    return loaded_packages("import h5py, numpy, pydantic, rich, typer", [f"import {module}" for module in LIGHT])


@pytest.fixture(scope="module")
def with_airflow() -> dict[str, set[str]]:
    return loaded_packages(
        "import airflow.sdk, h5py, numpy, pydantic", [f"import {OPERATORS}", *(running(file) for file in FILES)]
    )


@pytest.mark.parametrize("module", LIGHT)
@pytest.mark.slow  # starts processes
def test_light_module_loads_no_framework(module: str, light: dict[str, set[str]]) -> None:
    assert light[f"import {module}"] & HEAVY == set()


@pytest.mark.slow  # starts processes
def test_command_loads_readers_of_files_only_when_it_reads() -> None:
    statement = "import deepspark_ops.command.cli"
    loaded = loaded_packages("import numpy, pydantic, rich, typer", [statement])[statement]
    assert loaded & {"cv2", "google", "h5py", "pyarrow"} == set()


@pytest.mark.airflow
def test_operators_load_airflow_alone(with_airflow: dict[str, set[str]]) -> None:
    assert with_airflow[f"import {OPERATORS}"] & HEAVY == {"airflow"}


@pytest.mark.spark
def test_spark_driver_loads_spark_alone() -> None:
    jobs = [f"import deepspark_ops.{package}.spark_job" for package in ("evaluate", "ingest", "train.driver")]
    loaded = loaded_packages("import h5py, numpy, pydantic", jobs)
    assert {job: names & HEAVY for job, names in loaded.items()} == {job: {"pyspark"} for job in jobs}


@pytest.mark.airflow
@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_dag_and_plugin_files_load_airflow_alone(file: Path, with_airflow: dict[str, set[str]]) -> None:
    loaded = with_airflow[running(file)]
    assert loaded & HEAVY == {"airflow"}
    assert "fastapi" not in loaded or "plugin" not in file.name


def test_import_contracts_hold() -> None:
    tool = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    assert tool is not None
    completed = subprocess.run([tool], cwd=ROOT, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout
