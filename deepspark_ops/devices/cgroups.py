"""The cgroups of this process and the cgroups above; all limits apply to the process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def cgroup_folders(root: Path, controller: str) -> Iterator[tuple[Path, int]]:
    """Yield each cgroup's folder with its version, 1 or 2; yield nothing if the kernel has no cgroups.

    Args:
        root: Folder of ``proc`` and ``sys``.
        controller: Controller of the folder in version 1, e.g. ``cpu``.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for group in (Path(path), *Path(path).parents):
            below = str(group).lstrip("/")
            if not controllers:
                yield root / "sys/fs/cgroup" / below, 2
            elif controller in controllers.split(","):
                yield root / "sys/fs/cgroup" / controller / below, 1
