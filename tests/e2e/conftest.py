"""A net and data so small that the whole pipeline runs in seconds: digits at their own 8x8, one hidden layer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT

DIGITS = ROOT / "examples" / "digits" / "digits8x8-images-idx3-ubyte.gz"

NET = """
name: "small"
layer { name: "d" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  transform_param { scale: 0.00390625 } data_param { source: "none/train" backend: LMDB batch_size: 32 } }
layer { name: "d" type: "Data" top: "data" top: "label" include { phase: TEST }
  transform_param { scale: 0.00390625 } data_param { source: "none/test" backend: LMDB batch_size: 90 } }
layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1"
  inner_product_param { num_output: 32 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "ip1" top: "ip1" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip2" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
"""
SOLVER = """
net: "{net}" base_lr: 0.05 momentum: 0.9 lr_policy: "fixed" max_iter: 200 display: 50 random_seed: 1
test_iter: 4 test_interval: 100 snapshot: 100 snapshot_prefix: "small"
"""


@dataclass(frozen=True)
class Sandbox:
    """An Airflow and a DeepSpark home of their own, with the small example in it."""

    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def airflow_home(self) -> Path:
        return self.folder / "airflow"

    def conf(self, **changes: Any) -> dict[str, Any]:
        """The run's parameters: the small net on a dataset of its own."""
        solver = str(self.folder / "small_solver.prototxt")
        return {
            "solver": solver,
            "source": str(DIGITS),
            "resize_height": 0,
            "resize_width": 0,
            "max_pixel": 16,
        } | changes

    def replace_source(self, split: str, source: Path) -> None:
        """Let the net name a real source of its own."""
        net = self.folder / "small.prototxt"
        net.write_text(net.read_text().replace(f"none/{split}", str(source)))

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "AIRFLOW_HOME": str(self.airflow_home),
            "DEEPSPARK_AIRFLOW_HOME": str(self.airflow_home),
            "DEEPSPARK_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        }

    def airflow(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "airflow", *arguments],
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


@pytest.fixture(scope="session")
def migrated_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An Airflow home whose database is made; copied for each test."""
    empty = Sandbox(tmp_path_factory.mktemp("migrated"))
    done = empty.airflow("db", "migrate")
    assert done.returncode == 0, done.stdout
    return empty.airflow_home


@pytest.fixture
def sandbox(tmp_path: Path, migrated_home: Path) -> Sandbox:
    shutil.copytree(migrated_home, tmp_path / "airflow")
    (tmp_path / "small.prototxt").write_text(NET)
    (tmp_path / "small_solver.prototxt").write_text(SOLVER.format(net=tmp_path / "small.prototxt"))
    return Sandbox(tmp_path)
