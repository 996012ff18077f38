"""Light modules start without the heavy frameworks, seen from a fresh interpreter; and the written borders hold."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

HEAVY = {"tensorflow", "keras", "pyspark", "airflow", "mlflow"}

LIGHT = [
    "caffe_import.net.net_spec",
    "caffe_import.solver.solver_spec",
    "caffe_import.net.layer_registry",
    "caffe_import.files.caffemodel",
    "caffe_import.data.transform",
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
    "deepspark_ops.command.live_view",
    "deepspark_ops.tracking.send",
    "deepspark_ops.tracking.tell",
    "deepspark_ops.train.worker.loop",
    "deepspark_ops.train.snapshots.snapshot",
]


def imported_heavies(module: str) -> set[str]:
    code = f"import sys, {module}; print(' '.join(name for name in sys.modules if '.' not in name))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return HEAVY & set(done.stdout.split())


@pytest.mark.parametrize("module", LIGHT)
def test_light_module_loads_no_framework(module: str) -> None:
    assert imported_heavies(module) == set()


@pytest.mark.airflow
def test_operators_load_airflow_alone() -> None:
    stages = ("check", "ingest", "train", "evaluate", "export", "promote")
    assert imported_heavies(", ".join(f"deepspark_ops.operators.{stage}" for stage in stages)) == {"airflow"}


@pytest.mark.spark
@pytest.mark.parametrize("package", ["evaluate", "ingest", "train.driver"])
def test_spark_driver_loads_spark_alone(package: str) -> None:
    assert imported_heavies(f"deepspark_ops.{package}.spark_job") == {"pyspark"}


@pytest.mark.airflow
@pytest.mark.parametrize(
    "file", sorted([*(ROOT / "dags").glob("*.py"), ROOT / "plugins" / "deepspark_plugin.py"]), ids=str
)
def test_dag_and_plugin_files_load_airflow_alone(file: Path) -> None:
    code = (
        "import runpy, sys; "
        f"runpy.run_path({str(file)!r}); print(' '.join(name for name in sys.modules if '.' not in name))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert loaded & HEAVY == {"airflow"}
    assert "fastapi" not in loaded or "plugin" not in file.name


def test_import_contracts_hold() -> None:
    tool = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    assert tool is not None
    done = subprocess.run([tool], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
