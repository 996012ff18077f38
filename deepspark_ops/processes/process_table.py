"""Parents of processes, from the kernel's table. Linux; empty on other systems."""

from __future__ import annotations

from pathlib import Path


def parent_pids(proc: Path = Path("/proc")) -> dict[int, int]:
    """Return process id -> parent's process id, for every live process except zombies."""
    parents: dict[int, int] = {}
    for entry in proc.glob("[0-9]*/stat"):
        try:
            state, parent = entry.read_text().rpartition(")")[2].split()[:2]
        except OSError:  # the process ended meanwhile
            continue
        if state != "Z":
            parents[int(entry.parent.name)] = int(parent)
    return parents
