"""Spark's programs in a mount namespace that hides folders of this host: another host without these folders."""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pyspark
import pytest

from tests.paths import ROOT

CLONE_NEWNS = 0x20000
MS_REC, MS_PRIVATE = 0x4000, 0x40000


def python_folders() -> list[Path]:
    """Return the folders without which no Python of these tests starts: environment, checkout and interpreter."""
    base = Path(sys.base_prefix)
    interpreter = Path(sysconfig.get_path("stdlib")) if base == Path("/usr") else base
    folders = [ROOT, Path(sys.prefix).resolve(), interpreter]
    return [folder for folder in folders if not any(other in folder.parents for other in folders)]


def skip_without_mount_namespaces() -> None:
    """Skip a test where a process cannot have mounts of its own."""
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        pytest.skip("mount namespaces cannot be made here (root, util-linux)")


def bare_program(folder: Path, hidden: Sequence[Path]) -> Path:
    """Return a program that runs Spark's classes with empty ``hidden`` folders; skip without the right to hide folders.

    Args:
        folder: For the program and its copy of Spark; not below a hidden folder.
        hidden: Folders of this host.
    """
    skip_without_mount_namespaces()
    spark, program = folder / "spark", folder / "bare-spark-class"
    spark.mkdir()
    lines = [
        shlex.join(["mount", "--bind", str(Path(pyspark.__file__).parent), str(spark)]),
        *(shlex.join(["mount", "-t", "tmpfs", "tmpfs", str(path)]) for path in ["/dev/shm", *hidden]),
        "unset PYTHONPATH PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON VIRTUAL_ENV",
        f'cd / && SPARK_HOME={shlex.quote(str(spark))} exec {shlex.quote(str(spark / "bin" / "spark-class"))} "$@"',
    ]
    inner = shlex.quote(" && ".join(lines))
    program.write_text(f'#!/bin/sh\nexec unshare --mount --propagation private sh -c {inner} spark-class "$@"\n')
    program.chmod(0o700)
    return program


def hide(executor: Path, *folders: Path) -> None:
    """Give this process mounts of its own with empty folders, and a working folder as an executor has."""
    libc = ctypes.CDLL(None, use_errno=True)
    for failed in (
        libc.unshare(CLONE_NEWNS),
        libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None),
        *(libc.mount(b"tmpfs", bytes(folder), b"tmpfs", 0, None) for folder in folders),
    ):
        assert not failed, os.strerror(ctypes.get_errno())
    assert [path for folder in folders for path in folder.iterdir()] == []
    os.chdir(executor)
