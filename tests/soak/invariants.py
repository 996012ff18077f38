"""Conditions that hold after a run under faults: a check returns a finding in words, or nothing."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.processes import is_alive
from tests.soak.watch import Life

FEW_SAMPLES = 8
FLAT = 0.05
"""Memory of a process may grow by this share after its warm-up."""
FLAT_BYTES = 2 << 20
"""What a growth must exceed to be one: an allocator asks for more than 5 % of a server's memory at once."""


@dataclass(frozen=True)
class Growth:
    """How the memory of a process's life changed after its warm-up, from the first quarter's median to the last's."""

    role: str
    seconds: float
    first_bytes: float
    last_bytes: float

    @property
    def share(self) -> float:
        return self.last_bytes / self.first_bytes - 1.0


def growths(lives: Iterable[Life]) -> list[Growth]:
    """Return the growths of lives long enough."""
    growths_of_roles = []
    for life in lives:
        settled = life.settled()
        if len(settled) < 4 * FEW_SAMPLES:
            continue
        quarter = len(settled) // 4
        first, last = (statistics.median(s.rss_bytes for s in part) for part in (settled[:quarter], settled[-quarter:]))
        growths_of_roles.append(Growth(life.role, settled[-1].at - settled[0].at, first, last))
    return growths_of_roles


def memory_findings(measured: Sequence[Growth]) -> list[str]:
    return [
        f"{g.role}: memory grew by {100 * g.share:.1f} % in {g.seconds:.0f} s after its warm-up, from"
        f" {g.first_bytes / 2**20:.1f} to {g.last_bytes / 2**20:.1f} MiB"
        for g in measured
        if g.share > FLAT and g.last_bytes - g.first_bytes > FLAT_BYTES
    ]


def descriptor_findings(lives: Iterable[Life]) -> list[str]:
    """Say whose open files grew from the first quarter to the last of the times at which nothing was going on.

    The fewest of each count, since a snapshot that is being written holds files for a while; the data do not count.
    """
    findings = []
    for life in lives:
        calm = [sample.n_descriptors for sample in life.settled() if sample.is_calm]
        quarter = len(calm) // 4
        if quarter >= FEW_SAMPLES and min(calm[-quarter:]) > min(calm[:quarter]):
            findings.append(f"{life.role}: {min(calm[:quarter])} open files at first, {min(calm[-quarter:])} at last")
    return findings


def left_findings(lives: Iterable[Life], *centers: Path) -> list[str]:
    """Say what a run has left behind outside of its folder: processes, shared memory."""
    findings = [f"process {life.pid} ({life.role}) is alive" for life in lives if is_alive(life.pid)]
    return [*findings, *(f"{center} is there" for center in centers if center.exists())]


def file_findings(run_dir: Path, expected: Sequence[str]) -> list[str]:
    """Name the files of a run that an undisturbed run lacks."""
    return [f"{run_dir}/{name} is there" for name in files_of(run_dir) if name not in expected]


def files_of(run_dir: Path) -> list[str]:
    """Return a run's files, events of TensorBoard without the host's and the process's names."""
    names = (str(path.relative_to(run_dir)) for path in run_dir.rglob("*"))
    return sorted({name.partition(".tfevents.")[0] for name in names})
