"""The faults of ``make mutants``: at least one per folder of the packages, each of a likely kind.

The faults are in ``faults/*.toml``, by broken part.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.paths import ROOT

_FILES = sorted(Path(__file__).with_name("faults").glob("*.toml"))


@dataclass(frozen=True)
class Fault:
    """A change of one place in the code.

    Attributes:
        name: What is wrong then, in words without spaces.
        file: Path below the repository.
        old: Text that stands in the file exactly once.
        new: What it is replaced by.
        tests: Files or folders of tests that must turn red.
    """

    name: str
    file: str
    old: str
    new: str
    tests: list[str]

    def count(self) -> int:
        """Return how often the text is in the file; 0 for a file that is gone."""
        path = ROOT / self.file
        return path.read_text().count(self.old) if path.is_file() else 0


FAULTS = [Fault(**fields) for path in _FILES for fields in tomllib.loads(path.read_text())["fault"]]
