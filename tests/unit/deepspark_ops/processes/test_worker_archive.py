"""The environment of a worker in an archive: packages, an interpreter for any folder, and messages."""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
from pathlib import Path

import pytest

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.pack import PackConfig
from deepspark_ops.errors import ConfigError, DeepSparkError
from deepspark_ops.processes.worker_archive import (
    WorkerArchive,
    pack_folder,
    package_files,
    required_packages,
    stage_interpreter,
    start_check,
)


def test_a_workers_packages_are_those_that_training_requires_and_nothing_of_the_driver() -> None:
    packages = required_packages(["deepspark[train]"])
    assert {"deepspark", "tensorflow", "numpy", "protobuf", "lmdb", "h5py", "pydantic", "psutil"} <= set(packages)
    assert not {"apache-airflow", "pyspark", "mlflow-skinny", "pyarrow", "pytest", "libclang"} & set(packages)
    assert "pyarrow" in required_packages(["deepspark[train,tables]"])
    assert "pytest" in required_packages(["deepspark[train]", "pytest"])


def test_what_is_not_installed_is_one_message() -> None:
    with pytest.raises(ConfigError, match=r"deepspark pack needs no-such-package, which is not installed here: pip"):
        required_packages(["no-such-package"])
    with pytest.raises(ConfigError, match=r"deepspark has no extra trian; allowed: airflow, all, .*train"):
        required_packages(["deepspark[trian]"])
    for name in ("workers.zip", "workers.tar"):  # of a .tar Spark drops the permissions, and Python cannot be run
        with pytest.raises(ConfigError, match=rf"output=.*{name} ends with neither \.tar\.gz nor \.tgz"):
            parse_config(PackConfig, {"output": name})


def test_the_files_of_a_package_come_with_their_bytecode_and_without_programs_and_paths() -> None:
    names = [str(name) for _, name in package_files(required_packages(["deepspark"])["deepspark"])]
    assert "deepspark_ops/train/worker/process.py" in names
    assert any(name.endswith("/METADATA") for name in names)
    assert not [name for name in names if name.endswith(".pth") or ".." in name or "__editable__" in name]
    names = [str(name) for _, name in package_files(required_packages(["pydantic"])["pydantic"])]
    assert {"pydantic/main.py", f"pydantic/__pycache__/main.{sys.implementation.cache_tag}.pyc"} <= set(names)


@pytest.mark.long
def test_a_copied_interpreter_runs_from_the_archive_in_another_folder(tmp_path: Path) -> None:
    (tmp_path / "built").mkdir()
    stage_interpreter(tmp_path / "built")
    (tmp_path / "built" / "again").symlink_to("bin/python")
    n_bytes = pack_folder(tmp_path / "built", tmp_path / "a.tar.gz")
    shutil.rmtree(tmp_path / "built")
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        assert {entry.type for entry in tar} == {tarfile.REGTYPE}, "a link would lead to another place"
        assert sum(entry.size for entry in tar) == n_bytes
        assert {entry.uid for entry in tar} == {0}
        tar.extractall(tmp_path / "moved", filter="data")
    moved = tmp_path / "moved"
    paths = start_check(moved, "import sys; print(sys.prefix, *sys.path, sep=chr(10))").splitlines()
    assert [path for path in paths if not Path(path).is_relative_to(moved)] == []
    # The modules with shared libraries that a host need not have.
    loaded = start_check(moved, "import bz2, ctypes, lzma, ssl, zlib; print(open('/proc/self/maps').read())")
    for name in ("libssl", "libffi"):
        module_files = {line.split()[-1] for line in loaded.splitlines() if f"/{name}" in line}
        assert all(Path(module_file).is_relative_to(moved) for module_file in module_files), module_files
    with pytest.raises(DeepSparkError, match=r"does not start \(import tensorflow\): ModuleNotFoundError: No module"):
        start_check(moved, "import tensorflow")


def test_the_settings_of_a_job_name_the_folder_into_which_spark_unpacks() -> None:
    archive = WorkerArchive(Path("/data/workers.tar.gz"), {"numpy": "2.3.4"}, 2**20, 2**21)
    assert archive.settings() == {
        "spark.archives": "/data/workers.tar.gz#environment",
        "spark.pyspark.python": "./environment/bin/python",
    }
    assert archive.summary() == "1 packages, 1.0 MiB, 2.0 MiB on the disk of each executor"


@pytest.mark.spark
@pytest.mark.parametrize(("master", "python"), [("spark://a:7077", "./e/bin/python"), ("local[2]", "python-of-driver")])
def test_workers_of_a_cluster_start_by_the_interpreter_of_sparks_settings(
    monkeypatch: pytest.MonkeyPatch, master: str, python: str
) -> None:
    from deepspark_ops.processes.spark_context import use_workers_python

    monkeypatch.setenv("PYSPARK_PYTHON", "python-of-driver")
    use_workers_python({"spark.pyspark.python": "./e/bin/python"}, master)
    assert os.environ["PYSPARK_PYTHON"] == python
