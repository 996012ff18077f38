from __future__ import annotations

import os
from pathlib import Path

import pytest

from deepspark_ops.devices.host_cores import host_cores, share_of_cores
from tests.files import written

SIXTEEN = set(range(16))


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
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: SIXTEEN)
    assert host_cores(written(tmp_path, files)) == expected


def test_a_narrow_mask_counts_where_the_quota_is_wide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "900000 100000\n"}
    assert host_cores(written(tmp_path, files)) == 2


@pytest.mark.parametrize(
    ("requested", "cores", "n_workers", "expected"),
    [("auto", 2, 1, 2), ("auto", 2, 2, 1), ("auto", 7, 8, 1), (5, 2, 2, 5)],
)
def test_a_worker_gets_the_requested_cores_or_a_share(
    requested: int, cores: int, n_workers: int, expected: int
) -> None:
    assert share_of_cores(requested, cores, n_workers) == expected
