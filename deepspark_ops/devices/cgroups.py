"""The cgroups that this process is in, and those above them: their limits hold for it, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def cgroup_folders(root: Path, controller: str) -> Iterator[tuple[Path, int]]:
    """Yield each cgroup's folder with its version, 1 or 2; nothing where the kernel has none.

    Args:
        root: Where ``proc`` and ``sys`` are.
        controller: The controller whose folder it is in version 1, e.g. ``cpu``.
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
