"""Memory for training: of this host, limited by cgroups, and of the GPUs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from deepspark_ops.devices.cgroups import cgroup_folders
from deepspark_ops.devices.host_gpus import ask_nvidia_smi, host_gpus

_SIZES: Final = ("--query-gpu=memory.total", "--format=csv,noheader,nounits")
_LIMIT_FILES: Final = {1: "memory.limit_in_bytes", 2: "memory.max"}


def host_memory_bytes(root: Path = Path("/")) -> int:
    """Return the memory for processes like this process: the machine's memory, limited by the cgroups.

    Args:
        root: Folder of ``proc`` and ``sys``.
    """
    return min(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_limits(root))


def gpu_memory_bytes(environment: Mapping[str, str]) -> int | None:
    """Return the memory of the smallest GPU of this host; None where a process with ``environment`` sees no GPU."""
    if not host_gpus(environment).addresses:
        return None
    with suppress(OSError, subprocess.TimeoutExpired):
        answer = ask_nvidia_smi(_SIZES, environment)
        sizes = [int(line) * 2**20 for line in answer.stdout.split() if line.isdigit()]
        if answer.returncode == 0 and sizes:
            return min(sizes)
    return None


def _limits(root: Path) -> Iterator[int]:
    yield 2**63
    for folder, version in cgroup_folders(root, "memory"):
        with suppress(OSError, ValueError):  # "max" is no number
            yield int((folder / _LIMIT_FILES[version]).read_text())
