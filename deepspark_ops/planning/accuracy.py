"""Loss of accuracy with several workers at the same clock, from the table of measured runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from deepspark_ops.exchange.strategies.base import find_strategy
from deepspark_ops.exchange.strategies.measured import Measured, mean_loss, measured_near, measured_rows
from deepspark_ops.planning.plan_report import Accuracy

_NOTICED = 0.5
"""Points; smaller differences are within the spread of seeds."""


def accuracy_of(strategy: str, worker_counts: Sequence[int]) -> Iterator[Accuracy]:
    """Yield the measured loss of a strategy for each number of workers above 1, and a clearly better strategy."""
    name = find_strategy(strategy).name
    for n_workers in worker_counts:
        measured = measured_near(name, n_workers) if n_workers > 1 else ()
        if not measured:
            continue
        better = _better(name, n_workers, measured)
        yield Accuracy(
            workers=n_workers,
            measured_workers=measured[0].workers,
            lost_points={row.net: row.lost_points for row in measured},
            better=better.name if better is not None else None,
            text=_text(n_workers, measured, better),
        )


class _Better(NamedTuple):
    """A strategy with less loss of accuracy: the difference in points, mean over the nets measured for both."""

    name: str
    less: float


def _better(name: str, n_workers: int, measured: Sequence[Measured]) -> _Better | None:
    lost = {row.net: row.lost_points for row in measured}
    better_strategies = []
    for other in sorted({row.strategy for row in measured_rows()} - {name}):
        less = [lost[row.net] - row.lost_points for row in measured_near(other, n_workers) if row.net in lost]
        if less and fmean(less) > _NOTICED:
            better_strategies.append(_Better(other, fmean(less)))
    return max(better_strategies, key=lambda other: other.less, default=None)


def _text(n_workers: int, rows: Sequence[Measured], better: _Better | None) -> str:
    measured = rows[0].workers
    beyond = "" if measured == n_workers else f" (measured with {measured})"
    lost = ", ".join(f"{_change(row.lost_points)} ({row.net})" for row in rows)
    text = f"{n_workers:,} workers{beyond}: after as many minibatches as one worker {lost}"
    if mean_loss(rows) > _NOTICED:
        text += "; a longer run makes up for it"
    if better is not None:
        text += f"; {better.name} lost {better.less:.1f} points less"
    return text


def _change(lost_points: float) -> str:
    return f"{abs(lost_points):.1f} points {'less' if lost_points >= 0 else 'more'}"
