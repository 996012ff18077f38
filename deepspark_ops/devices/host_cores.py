"""Cores of this process, and a worker's share of the cores. No framework."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

from deepspark_ops.devices.cgroups import cgroup_folders

Threads = Literal["auto"] | int
"""``TrainConfig.threads_per_worker``."""
_UNLIMITED: Final = float("inf")


def host_cores(root: Path = Path("/")) -> int:
    """Return the cores of this process: its affinity mask, limited by the quotas of its cgroups.

    A quota of 2.5 cores counts as 2: another thread would be stopped for a part of each period.

    Args:
        root: Folder of ``proc`` and ``sys``.
    """
    quota = min(_quotas(root), default=_UNLIMITED)
    return int(max(1, min(len(os.sched_getaffinity(0)), quota)))


def share_of_cores(requested: Threads, cores: int, n_workers: int) -> int:
    """Return the threads of each of ``n_workers`` workers on ``cores`` cores; 1 or more.

    Example:
        >>> share_of_cores("auto", 16, 3), share_of_cores("auto", 2, 4), share_of_cores(6, 2, 4)
        (5, 1, 6)
    """
    return max(1, cores // n_workers) if requested == "auto" else requested


def _quotas(root: Path) -> Iterator[float]:
    """Yield the limit in cores of each cgroup of this process."""
    for folder, version in cgroup_folders(root, "cpu"):
        if version == 2:
            yield _limit(folder / "cpu.max")
        else:
            yield _limit(folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us")


def _limit(*files: Path) -> float:
    """Return quota / period of the numbers in some files, in cores; no limit where a file is missing or says none."""
    with suppress(OSError, ValueError):
        quota, period = (float(word) for file in files for word in file.read_text().split())
        if quota > 0 and period > 0:
            return quota / period
    return _UNLIMITED
