"""Airflow lists DeepSpark among its providers where the package is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from deepspark_ops.operators.provider import get_provider_info
from tests.paths import ROOT

pytestmark = pytest.mark.airflow


def test_airflow_lists_the_provider_of_an_installed_package(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    group = "apache_airflow_provider"
    lines = [f"[{group}]", *(f"{name} = {value}" for name, value in project["entry-points"][group].items())]
    metadata = tmp_path / "deepspark-9.9.dist-info"  # what an installation has beside the package
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: deepspark\nVersion: 9.9\n")
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path / "airflow"), "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    command = [sys.executable, "-m", "airflow", "providers", "list", "--output", "json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    listed = {one["package_name"]: one for one in json.loads(done.stdout[done.stdout.index("[{") :])}
    assert listed["deepspark"]["version"] == "9.9"
    assert listed["deepspark"]["description"].startswith("Caffe nets trained by Spark workers")


def test_every_module_that_the_provider_names_has_an_operator() -> None:
    (operators,) = get_provider_info()["operators"]
    for name in operators["python-modules"]:
        assert any(one.startswith("DeepSpark") for one in vars(import_module(name)))
