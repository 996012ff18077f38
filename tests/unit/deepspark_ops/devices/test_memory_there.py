from __future__ import annotations

import os
from pathlib import Path

import pytest

from deepspark_ops.devices.memory_there import gpu_memory_bytes, host_memory_bytes
from tests.files import written

MIB = 2**20


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 4096 * 1000),
        ({"proc/self/cgroup": "0::/box\n", "sys/fs/cgroup/box/memory.max": "max\n"}, 4096 * 1000),
        ({"proc/self/cgroup": "0::/box\n", "sys/fs/cgroup/box/memory.max": "5000\n"}, 5000),
        ({"proc/self/cgroup": "0::/box/in\n", "sys/fs/cgroup/box/memory.max": "7000\n"}, 7000),
        ({"proc/self/cgroup": "3:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9000\n"}, 9000),
        (
            {"proc/self/cgroup": "3:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"},
            4096 * 1000,
        ),
    ],
)
def test_the_narrowest_limit_of_machine_and_cgroups_counts(
    files: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}.__getitem__)
    assert host_memory_bytes(written(tmp_path, files)) == expected


def smi(folder: Path, script: str) -> dict[str, str]:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_the_smallest_gpu_counts(tmp_path: Path) -> None:
    both = 'case "$*" in *memory.total*) echo 40536; echo 24576;; *) echo 0; echo 1;; esac'
    environment = smi(tmp_path, both)
    assert gpu_memory_bytes(environment) == 24576 * MIB
    assert gpu_memory_bytes(environment | {"CUDA_VISIBLE_DEVICES": ""}) is None


@pytest.mark.parametrize("script", ["exit 9", 'case "$*" in *memory.total*) exit 3;; *) echo 0;; esac'])
def test_no_gpu_has_no_memory(tmp_path: Path, script: str) -> None:
    assert gpu_memory_bytes(smi(tmp_path, script)) is None
