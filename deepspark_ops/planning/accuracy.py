"""What a number of workers costs in accuracy at the same clock, by the table of measured runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from deepspark_ops.exchange.strategies.base import find_strategy
from deepspark_ops.exchange.strategies.measured import Measured, mean_loss, measured_near, measured_rows
from deepspark_ops.planning.plan_report import Accuracy

_NOTICED = 0.5
"""Points; less is what another seed changes."""


def accuracy_of(strategy: str, worker_counts: Sequence[int]) -> Iterator[Accuracy]:
    """Yield what is known of a strategy for each number of workers above 1, and which one lost clearly less there."""
    name = find_strategy(strategy).name
    for n_workers in worker_counts:
        found = measured_near(name, n_workers) if n_workers > 1 else ()
        if not found:
            continue
        better = _better(name, n_workers, found)
        yield Accuracy(
            workers=n_workers,
            measured_workers=found[0].workers,
            lost_points={row.net: row.lost_points for row in found},
            better=better.name if better is not None else None,
            text=_text(n_workers, found, better),
        )


class _Better(NamedTuple):
    """A strategy that lost less, by how many points, mean over the nets that both were measured on."""

    name: str
    less: float


def _better(name: str, n_workers: int, found: Sequence[Measured]) -> _Better | None:
    lost = {row.net: row.lost_points for row in found}
    others = []
    for other in sorted({row.strategy for row in measured_rows()} - {name}):
        less = [lost[row.net] - row.lost_points for row in measured_near(other, n_workers) if row.net in lost]
        if less and fmean(less) > _NOTICED:
            others.append(_Better(other, fmean(less)))
    return max(others, key=lambda other: other.less, default=None)


def _text(n_workers: int, found: Sequence[Measured], better: _Better | None) -> str:
    measured = found[0].workers
    beyond = "" if measured == n_workers else f" (measured with {measured})"
    lost = ", ".join(f"{_change(row.lost_points)} ({row.net})" for row in found)
    text = f"{n_workers:,} workers{beyond}: after as many minibatches as one worker {lost}"
    if mean_loss(found) > _NOTICED:
        text += "; a longer run makes up for it"
    if better is not None:
        text += f"; {better.name} lost {better.less:.1f} points less"
    return text


def _change(lost_points: float) -> str:
    return f"{abs(lost_points):.1f} points {'less' if lost_points >= 0 else 'more'}"
