from __future__ import annotations

import os
from pathlib import Path

import pytest

from deepspark_ops.devices.host_cores import MOST_PASS_BYTES, host_cores, passes_at_once, share_of_cores
from tests.files import written

MANY = set(range(16))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 16),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 16),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "400000 100000\n"}, 4),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "250000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        # The group above is the narrower one.
        (
            {
                "proc/self/cgroup": "0::/pod/box\n",
                "sys/fs/cgroup/pod/box/cpu.max": "800000 100000\n",
                "sys/fs/cgroup/pod/cpu.max": "300000 100000\n",
            },
            3,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/\n2:cpuacct,cpu:/docker/7\n0::/\n",
                "sys/fs/cgroup/cpu/docker/7/cpu.cfs_quota_us": "600000\n",
                "sys/fs/cgroup/cpu/docker/7/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            6,
        ),
    ],
)
def test_cores_are_those_of_the_mask_and_no_more_than_a_cgroup_grants(
    files: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: MANY)
    assert host_cores(written(tmp_path, files)) == expected


def test_a_narrow_mask_counts_where_the_quota_is_wide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "900000 100000\n"}
    assert host_cores(written(tmp_path, files)) == 2


@pytest.mark.parametrize(
    ("asked", "cores", "n_workers", "expected"), [("auto", 2, 1, 2), ("auto", 2, 2, 1), ("auto", 7, 8, 1), (5, 2, 2, 5)]
)
def test_a_worker_gets_its_share_or_what_was_asked_for(asked: int, cores: int, n_workers: int, expected: int) -> None:
    assert share_of_cores(asked, cores, n_workers) == expected


@pytest.mark.parametrize(
    ("n_bytes", "n_threads", "is_host", "expected"),
    [
        (2**20, 2, True, 2),
        (MOST_PASS_BYTES, 16, True, 2),
        (MOST_PASS_BYTES + 4, 16, True, 1),  # a second pass would double what is felt
        (2**20, 1, True, 1),
        (2**20, 16, False, 1),
    ],
)
def test_two_passes_at_a_time_where_one_leaves_cores_idle(n_bytes, n_threads, is_host, expected):
    shapes = [(n_bytes // 8, 1), (n_bytes // 8,), ((n_bytes % 8) // 4,)]
    assert passes_at_once(shapes, n_threads, is_host=is_host) == expected
