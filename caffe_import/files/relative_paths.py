"""Where a relative path in a solver or a net is looked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def roots_of(solver: Path) -> Iterator[Path]:
    """Yield the folders that a relative path may start from, nearest rule first.

    Caffe knows the working directory only. A scheduler's task cannot choose it, so the solver's folder and its
    parents follow: Caffe's own examples are written for the folder above them.
    """
    yield Path()
    yield from solver.absolute().parents


def find_relative(written: str, solver: Path) -> tuple[Path, Path] | None:
    """Return what ``written`` names and the folder it was found from; None where no folder has it.

    An absolute path is found as itself. What the working directory has stays relative, as the user knows it.
    """
    for root in roots_of(solver):
        if (root / written).exists():
            return root / written, root
    return None
