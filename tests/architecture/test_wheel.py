"""The wheel: built from the tracked files without a network, it holds what an installation outside a checkout needs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from email.parser import HeaderParser
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tests.paths import FIXTURES, ROOT

pytestmark = pytest.mark.slow  # builds a wheel in processes

SOURCES = ("pyproject.toml", "README.md", "caffe_import", "deepspark_ops", "examples", "tests/fixtures/caffe")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel of a copy, since setuptools takes what an earlier build left in build/ as well."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        source, target = ROOT / name, folder / "checkout" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_file():
            shutil.copy(source, target)
        else:
            shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    command = [sys.executable, "-m", "pip", "wheel", *options, str(folder / "checkout")]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    (path,) = folder.glob("deepspark-*.whl")
    return zipfile.ZipFile(path)


def metadata(wheel: zipfile.ZipFile, name: str) -> str:
    (path,) = [path for path in wheel.namelist() if path.endswith(f".dist-info/{name}")]
    return wheel.read(path).decode()


def test_every_module_and_every_data_file_of_the_packages_is_inside(wheel: zipfile.ZipFile) -> None:
    inside = set(wheel.namelist())
    for package in ("caffe_import", "deepspark_ops"):
        assert f"{package}/py.typed" in inside
        for path in (ROOT / package).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert str(path.relative_to(ROOT)) in inside


def test_recorded_cases_are_inside_and_small(wheel: zipfile.ZipFile) -> None:
    cases = FIXTURES / "caffe"
    recorded = {f"caffe_import/parity/cases/{path.relative_to(cases)}" for path in cases.rglob("*") if path.is_file()}
    inside = {info.filename: info for info in wheel.infolist()}
    assert recorded <= set(inside)
    assert json.loads(wheel.read("caffe_import/parity/cases/index.json"))["cases"]
    assert sum(inside[name].compress_size for name in recorded) < 3_000_000


def test_examples_that_the_demo_needs_are_inside(wheel: zipfile.ZipFile) -> None:
    for path in (ROOT / "examples").rglob("*"):
        if path.is_file() and path.parent.name != "__pycache__":  # Python's own, of an example that a test has loaded
            assert wheel.read(f"deepspark_ops/{path.relative_to(ROOT)}") == path.read_bytes()


def test_nothing_of_the_checkout_alone_is_inside(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"caffe_import", "deepspark_ops"}


def test_command_is_an_entry_point(wheel: zipfile.ZipFile) -> None:
    entries = ConfigParser()
    entries.read_string(metadata(wheel, "entry_points.txt"))
    assert entries["console_scripts"]["deepspark"] == "deepspark_ops.command.cli:main"


@pytest.mark.airflow
def test_plugin_is_an_entry_point_by_its_own_name(wheel: zipfile.ZipFile) -> None:
    entries = ConfigParser()
    entries.read_string(metadata(wheel, "entry_points.txt"))
    ((name, value),) = entries["airflow.plugins"].items()
    plugin = EntryPoint(name, value, "airflow.plugins").load()
    # Airflow would report a second plugin of this name, the folder's, as an import error.
    assert plugin.name == name


def test_frameworks_are_wanted_by_extras_alone(wheel: zipfile.ZipFile) -> None:
    requirements = HeaderParser().parsestr(metadata(wheel, "METADATA")).get_all("Requires-Dist", [])
    for framework in ("apache-airflow", "pyspark", "tensorflow"):
        lines = [line for line in requirements if line.startswith(framework)]
        assert lines
        assert all("extra ==" in line for line in lines), lines
    assert not [line for line in requirements if "==" in line.partition(";")[0]], (
        "exact versions are the lock files' alone"
    )


def test_an_installed_package_finds_its_files_without_a_checkout(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path / "site")
    code = (
        "import deepspark_ops; from caffe_import.parity.case import RECORDED_CASES, load_cases;"
        "print(deepspark_ops.__file__, len(load_cases(RECORDED_CASES)))"
    )
    # -P and the path: this checkout, which the tests run in, must not be what is found.
    completed = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    where, count = completed.stdout.split()
    assert where == str(tmp_path / "site" / "deepspark_ops" / "__init__.py")
    assert int(count) > 200


def test_the_script_that_spark_runs_stays_a_program(wheel: zipfile.ZipFile) -> None:
    # pip sets the right to run the script if the archive has the right.
    mode = wheel.getinfo("deepspark_ops/devices/gpu_discovery.sh").external_attr >> 16
    assert mode & 0o111
