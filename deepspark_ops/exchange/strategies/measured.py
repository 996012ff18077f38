"""The measured results of each strategy on small nets at its defaults, for advice and ``strategy: auto``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Final, NamedTuple

from caffe_import.file_access.regular_file import regular_text

MEASURED_FILE: Final = Path(__file__).with_name("measured.json")
"""Written by ``python -m benchmarks.defaults``."""
_VERSION: Final = 1


class Measured(NamedTuple):
    """A strategy with a number of workers on one net, in virtual time, mean over seeds.

    Attributes:
        net: And its data, for readers.
        strategy: At its defaults.
        workers: p.
        stragglers: Share of the workers that were three times slower.
        minibatches: The clock at which accuracies are compared, the same for every p.
        seeds: Runs.
        lost_points: Per cent of test samples, fewer right than with one worker; negative: more.
        times_faster: Than one worker, to its accuracy less two points (cifar10_quick: to 73 %), by a run as long as
            it takes where there is one; None where half of them or more never got there.
    """

    net: str
    strategy: str
    workers: int
    stragglers: float
    minibatches: int
    seeds: int
    lost_points: float
    times_faster: float | None


@cache
def measured_rows() -> tuple[Measured, ...]:
    """Return the whole table."""
    plain = json.loads(regular_text(MEASURED_FILE))
    assert plain["format_version"] == _VERSION, "the file comes with this module"
    return tuple(Measured(**row) for row in plain["rows"])


def measured_near(strategy: str, n_workers: int, *, uneven: bool = False) -> tuple[Measured, ...]:
    """Return a strategy's rows, one per net, for the largest measured number of workers up to ``n_workers``.

    Args:
        strategy: Name of the strategy; a strategy without measurements has no rows.
        n_workers: At least 2; below the least measured number, the rows of the least number.
        uneven: Rows of the runs with slow workers.
    """
    alike = [row for row in measured_rows() if bool(row.stragglers) == uneven]
    counts = {row.workers for row in alike}
    nearest = max((count for count in counts if count <= n_workers), default=min(counts, default=0))
    return tuple(row for row in alike if (row.strategy, row.workers) == (strategy, nearest))


def mean_loss(rows: Sequence[Measured]) -> float:
    """Return the points that a strategy lost, mean over the nets."""
    return fmean(row.lost_points for row in rows)
