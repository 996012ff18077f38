"""A host on which nothing is prepared: without Python, run and dataset, workers train by deepspark pack.

Takes minutes, and needs the right to make mount namespaces (root has the right); `make test-cluster` runs the file.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import deepspark_ops as ds
from deepspark_ops.processes.worker_archive import WorkerArchive
from deepspark_ops.shards.manifest import read_manifest, sha256_of_file
from tests.integration.train.bare_hosts import bare_program, python_folders
from tests.integration.train.test_cluster import REGISTERED, spark_class, standalone_master, worker_arguments
from tests.paths import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.tf, pytest.mark.slow, pytest.mark.timeout(900)]

DIGITS = ROOT / "examples" / "digits"
MAX_ITER = 400


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerArchive]:
    packed = ds.pack(tmp_path_factory.mktemp("pack") / "workers.tar.gz", progress=False)
    yield packed
    packed.path.unlink()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "digits"
    options = {"resize_height": 28, "resize_width": 28, "max_pixel": 16}
    ds.ingest(DIGITS / "digits8x8-images-idx3-ubyte.gz", folder, engine="process", progress=False, **options)
    return folder


class BareCluster:
    """A master on this host, and a Spark worker with two cores on a host without Python's folders."""

    def __init__(self, folder: Path, archive: WorkerArchive) -> None:
        self._folder = folder
        self._archive = archive

    def open(self, stack: ExitStack, *hidden: Path) -> str:
        """Start both until the stack ends; the Spark worker sees ``hidden`` folders empty, too."""
        secret = f"spark.authenticate true\nspark.authenticate.secret {secrets.token_hex(32)}\n"
        master = stack.enter_context(standalone_master(self._folder, "127.0.0.1", secret))
        start = worker_arguments(master, "127.0.0.1", self._folder / "work", cores=2, memory="2g")
        program = bare_program(self._folder, [*python_folders(), *hidden])
        log, settings = self._folder / "worker.log", self._folder / "conf"
        stack.enter_context(spark_class(*start, log=log, ready=REGISTERED, settings=settings, program=program))
        return master

    def train(
        self, run_dir: Path, dataset: Path, master: str, *, with_archive: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Train the digits as a user does, with the archive's properties in the settings of this host."""
        conf = self._folder / "conf" / "spark-defaults.conf"
        if with_archive:
            lines = "".join(f"{name} {value}\n" for name, value in self._archive.settings().items())
            conf.write_text(conf.read_text() + lines)
        command = [sys.executable, "-m", "deepspark_ops.command.cli", "train", str(DIGITS / "lenet_solver.prototxt")]
        options = {"dataset": dataset, "run-dir": run_dir, "master": master, "n-workers": 2, "worker-tries": 2}
        options |= {"staging-folder": self._folder / "copies"}
        options |= {"overrides": f"max_iter: {MAX_ITER} test_interval: {MAX_ITER} snapshot: {MAX_ITER // 2}"}
        command += [word for name, value in options.items() for word in (f"--{name}", str(value))]
        return subprocess.run(
            command,
            env={**os.environ, "SPARK_CONF_DIR": str(conf.parent)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=600,
        )


@pytest.fixture
def bare(tmp_path: Path, archive: WorkerArchive) -> Iterator[BareCluster]:
    (tmp_path / "cluster").mkdir()
    yield BareCluster(tmp_path / "cluster", archive)
    shutil.rmtree(tmp_path / "cluster" / "work")  # gigabytes that Spark has unpacked


def accuracy(run_dir: Path) -> float:
    """Return the run's last accuracy in its own tests."""
    from deepspark_ops.events import read_events
    from deepspark_ops.run_paths import RunPaths

    tests = [event for event in read_events(RunPaths(run_dir).events) if event.kind == "evaluation"]
    assert tests[-1].clock == MAX_ITER
    return float(tests[-1].data["accuracy"])


def test_workers_without_packages_run_and_dataset_train_the_digits_by_the_archive(
    tmp_path: Path, bare: BareCluster, dataset: Path
) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    with ExitStack() as stack:
        master = bare.open(stack, runs, dataset)
        without = bare.train(runs / "refused", dataset, master, with_archive=False)
        completed = bare.train(runs / "run", dataset, master)
    assert without.returncode == 1, without.stdout
    assert "none came as far as the worker's code" in without.stdout
    assert completed.returncode == 0, completed.stdout
    assert "other versions" not in completed.stdout
    (copy,) = (tmp_path / "cluster" / "work").glob("app-*/*/deepspark-run-*")
    assert {path.name for path in (copy / "work" / "starts").iterdir()} == {"worker_0.json", "worker_1.json"}
    copies = {
        path.parent.parent.name: sha256_of_file(path) for path in (tmp_path / "cluster" / "copies").rglob("data.mdb")
    }
    shards = {shard.sha256 for split in ("train", "test") for shard in read_manifest(dataset / split).shards}
    assert set(copies) == set(copies.values()) == shards
    assert accuracy(runs / "run") > 0.95
