"""How many cores this process may use, a worker's share of them, and what fills them. No framework."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Final, Literal

from deepspark_ops.devices.cgroups import cgroup_folders

Threads = Literal["auto"] | int
"""``TrainConfig.threads_per_worker``."""
_UNLIMITED: Final = float("inf")
_FLOAT_BYTES: Final = 4
MOST_PASS_BYTES: Final = 256 * 2**20
"""Of the blobs of a forward pass, above which there is one at a time: memory for a second one would be felt, and the
kernels of such a net fill the cores by themselves."""


def host_cores(root: Path = Path("/")) -> int:
    """Return the cores that this process may keep busy: its affinity mask, and no more than its cgroups' quota.

    A quota of 2.5 cores counts as 2: a thread more would be stopped for part of each period.

    Args:
        root: Where ``proc`` and ``sys`` are.
    """
    quota = min(_quotas(root), default=_UNLIMITED)
    return int(max(1, min(len(os.sched_getaffinity(0)), quota)))


def share_of_cores(asked: Threads, cores: int, n_workers: int) -> int:
    """Return the threads of one of ``n_workers`` workers on ``cores`` cores; 1 or more.

    Example:
        >>> share_of_cores("auto", 16, 3), share_of_cores("auto", 2, 4), share_of_cores(6, 2, 4)
        (5, 1, 6)
    """
    return max(1, cores // n_workers) if asked == "auto" else asked


def passes_at_once(shapes: Iterable[Sequence[int]], n_threads: int, *, is_host: bool) -> int:
    """Return how many forward passes to compute at a time: 2 where one leaves cores idle, else 1.

    Between kernels, and in what numpy and Python do around a pass, most cores wait: on two cores cifar10_quick with
    batches of 100 keeps 1.6 of them busy.

    Args:
        shapes: Of the net's blobs, for the batches that are computed; float32.
        n_threads: Cores for this process.
        is_host: Does the CPU compute? Kernels of a GPU run one after another anyway.
    """
    n_bytes = _FLOAT_BYTES * sum(prod(shape) for shape in shapes)
    return 2 if is_host and n_threads > 1 and n_bytes <= MOST_PASS_BYTES else 1


def _quotas(root: Path) -> Iterator[float]:
    """Yield the limit in cores of each cgroup that holds for this process."""
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
