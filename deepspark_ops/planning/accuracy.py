"""What a number of workers costs in accuracy at the same clock, by the table of measured runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
        lost = mean_loss(found)
        better = _better(name, n_workers, lost)
        yield Accuracy(
            workers=n_workers,
            measured_workers=found[0].workers,
            lost_points={row.net: row.lost_points for row in found},
            better=better,
            text=_text(n_workers, found, better),
        )


def _better(name: str, n_workers: int, lost: float) -> str | None:
    others = sorted({row.strategy for row in measured_rows()} - {name})
    losses = {other: mean_loss(found) for other in others if (found := measured_near(other, n_workers))}
    best = min(losses, key=lambda other: losses[other], default=None)
    return best if best is not None and losses[best] < lost - _NOTICED else None


def _text(n_workers: int, found: Sequence[Measured], better: str | None) -> str:
    measured = found[0].workers
    beyond = "" if measured == n_workers else f" (measured with {measured})"
    lost = ", ".join(f"{_change(row.lost_points)} ({row.net})" for row in found)
    text = f"{n_workers:,} workers{beyond}: after as many minibatches as one worker {lost}"
    if mean_loss(found) > _NOTICED:
        text += "; a longer run makes up for it"
    if better is not None:
        text += f"; {better} lost {mean_loss(measured_near(better, n_workers)):.1f}"
    return text


def _change(lost_points: float) -> str:
    return f"{abs(lost_points):.1f} points {'less' if lost_points >= 0 else 'more'}"
