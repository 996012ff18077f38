from __future__ import annotations

import os
import re
import socket
import subprocess
from pathlib import Path

import pytest

from deepspark_ops.doctor import host
from deepspark_ops.doctor.check import Check, failed, to_plain
from deepspark_ops.doctor.host import (
    GIB,
    JVM_BYTES,
    WORKER_BYTES,
    available_memory,
    disk_check,
    gpus_check,
    java_check,
    listen_checks,
    master_checks,
    memory_check,
    package_checks,
    python_check,
    shared_memory_check,
)
from deepspark_ops.errors import ConfigError
from tests.fake_smi import NAMES, smi_folder


def test_a_message_is_finding_and_remedy() -> None:
    assert failed("a", "x is y; do z; or w") == Check("a", False, "x is y", "do z; or w")
    assert failed("a", "x is y", otherwise="do z").remedy == "do z"
    assert to_plain([Check("a", True, "b")]) == {"checks": [{"name": "a", "ok": True, "detail": "b", "remedy": ""}]}


@pytest.mark.parametrize(
    ("version", "ok", "warns"), [((3, 10), False, True), ((3, 11), True, False), ((3, 14), True, True)]
)
def test_python_has_a_tested_version(version: tuple[int, int], ok: bool, warns: bool) -> None:
    check = python_check(version)
    assert (check.ok, bool(check.remedy)) == (ok, warns)
    assert python_check().ok


def test_packages_that_are_missing_or_come_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    versions = {"pyspark": "4.2.0"}
    monkeypatch.setattr(host, "installed_versions", lambda *names: dict(versions))
    spark, tensorflow = package_checks({})
    assert spark == Check("pyspark", True, "pyspark 4.2.0")
    assert not tensorflow.ok
    assert tensorflow.remedy == 'pip install "deepspark[train]"'
    (tmp_path / "RELEASE").write_text("Spark 3.5.1 (git revision fd86f85) built for Hadoop 3.3.4\n")
    assert "is Spark 3.5.1" in package_checks({"SPARK_HOME": str(tmp_path)})[0].remedy
    (tmp_path / "RELEASE").write_text("Spark 4.2.0 built for Hadoop 3.3.4\n")
    assert package_checks({"SPARK_HOME": str(tmp_path)})[0].remedy == ""
    versions["pyspark-client"] = "4.1.0"
    mixed = package_checks({})[0]
    assert (mixed.ok, mixed.detail) == (
        False,
        "pyspark 4.2.0 and pyspark-client 4.1.0 overwrite each other's files",
    )
    assert mixed.remedy.endswith("pip install --force-reinstall --no-deps pyspark==4.1.0 pyspark-client==4.1.0")


def test_no_java_in_path_says_what_to_install(tmp_path: Path) -> None:
    check = java_check({"PATH": str(tmp_path)})
    assert (check.ok, check.detail) == (False, "no Java found by PATH")
    assert "apt-get install" in check.remedy


def test_memory_for_a_driver_fails_and_for_all_workers_warns() -> None:
    needed = JVM_BYTES + 2 * WORKER_BYTES
    assert memory_check(2, is_local=True, available=needed) == Check(
        "memory", True, memory_check(2, is_local=True, available=needed).detail
    )
    little = memory_check(2, is_local=True, available=needed - 1)
    assert (little.ok, "lower n_workers" in little.remedy) == (True, True)
    assert memory_check(2, is_local=False, available=JVM_BYTES).remedy == ""
    assert not memory_check(2, is_local=False, available=JVM_BYTES - 1).ok


def test_free_memory_is_what_the_kernel_calls_available(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 8000 kB\nMemFree: 10 kB\nMemAvailable:   2048 kB\n")
    assert available_memory(tmp_path / "meminfo") == 2 * 2**20


def test_a_disk_takes_data_or_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "free_bytes", lambda folder: 100 * GIB)
    assert disk_check("disk", tmp_path / "not" / "yet") == Check("disk", True, f"{tmp_path}: 100.0 GiB free")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(host, "free_bytes", lambda folder: GIB)
    assert disk_check("disk", tmp_path).is_warning

    def full(handle: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    check = disk_check("disk", tmp_path)
    assert (check.ok, check.detail) == (False, f"{tmp_path}: No space left on device")


def test_full_shared_memory_is_a_warning_since_the_center_goes_to_the_runs_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "free_bytes", lambda folder: GIB)
    assert shared_memory_check(tmp_path).remedy == ""
    monkeypatch.setattr(host, "free_bytes", lambda folder: 2**20)
    check = shared_memory_check(tmp_path)
    assert (check.ok, check.is_warning) == (True, True)
    assert "room for a net of 0 parameters" in check.detail
    monkeypatch.undo()
    assert shared_memory_check(tmp_path / "none").is_warning


def test_the_address_and_port_that_a_training_would_take() -> None:
    checks, address = listen_checks("local[2]", "auto", 0)
    assert (checks[0].ok, address) == (True, "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        port = occupied.getsockname()[1]
        (check,), address = listen_checks("local[2]", "auto", port)
    assert (check.ok, address, check.detail) == (False, None, f"auto, port {port}: Address already in use")

    def refuse(host: str, master: str) -> str:
        msg = "listen_address=auto: none found; give listen_address"
        raise ConfigError(msg)

    (check,), address = listen_checks("yarn", "auto", 0, choose=refuse)
    assert (check.ok, address, check.remedy) == (False, None, "give listen_address")


def test_each_server_of_a_training_has_a_port_of_its_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        port = occupied.getsockname()[1]
        (check,), address = listen_checks("local[2]", "auto", port - 1, 2)
    assert (check.ok, address) == (False, None)
    assert re.match(rf"auto, port ({port - 1}|{port}): Address already in use", check.detail)
    assert f"the servers of exchange and files need ports {port - 1} to {port + 1}" in check.remedy
    (check,), _ = listen_checks("local[2]", "auto", 65_535, 2)
    assert not check.ok
    assert check.detail.startswith("auto, port 65536: ")
    assert listen_checks("local[2]", "auto", 0, 3)[0][0].ok


def test_gpus_are_named_and_none_is_no_failure(tmp_path: Path) -> None:
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    smi_folder(tmp_path, "0, GPU-1, NVIDIA H200, 143771 MiB\n1, GPU-2, NVIDIA H200, 143771 MiB", query=NAMES)
    for setting, text in (("0,1", "2 x NVIDIA H200, 143771 MiB"), ("GPU-2", "NVIDIA H200, 143771 MiB")):
        assert gpus_check({**path, "CUDA_VISIBLE_DEVICES": setting}) == Check("GPUs", True, text)
    hidden = gpus_check({**path, "CUDA_VISIBLE_DEVICES": "-1"})
    assert hidden == Check("GPUs", True, "CUDA_VISIBLE_DEVICES='-1' hides all GPUs of this host")
    absent = gpus_check({"PATH": str(tmp_path / "none")})
    assert (absent.ok, absent.remedy) == (True, "")
    assert "no nvidia-smi on PATH" in absent.detail


def test_a_master_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as master:
        port = master.getsockname()[1]
        assert master_checks([("127.0.0.1", port)]) == [Check(f"master 127.0.0.1:{port}", True, "answers")]
    (check,) = master_checks([("127.0.0.1", port)])
    assert (check.ok, check.detail) == (False, "Connection refused")
    assert "firewall" in check.remedy


def test_java_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def hang(*_: object, timeout: float, **__: object) -> None:
        raise subprocess.TimeoutExpired("java", timeout)

    monkeypatch.setattr(subprocess, "run", hang)
    (tmp_path / "java").write_text("")
    (tmp_path / "java").chmod(0o755)
    check = java_check({"PATH": str(tmp_path)})
    assert not check.ok
    assert "of unknown version" in check.detail
