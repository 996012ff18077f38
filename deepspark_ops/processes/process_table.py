"""Which process is whose child, as the kernel lists it. Linux; elsewhere the list is empty."""

from __future__ import annotations

from pathlib import Path


def parent_pids() -> dict[int, int]:
    """Return process id -> its parent's, of every process that lives; zombies are left out."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = entry.read_text().rpartition(")")[2].split()[:2]
        except OSError:  # it ended meanwhile
            continue
        if state != "Z":
            parents[int(entry.parent.name)] = int(parent)
    return parents
