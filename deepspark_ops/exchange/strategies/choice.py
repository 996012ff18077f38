"""The choice of ``strategy: auto``, by the table of measured runs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Final, NamedTuple

from deepspark_ops.exchange.strategies.base import find_strategy, strategy_names
from deepspark_ops.exchange.strategies.measured import Measured, mean_loss, measured_near, measured_rows
from deepspark_ops.sizes import share_text

AUTO: Final = "auto"
USUAL: Final = "easgd"
_CLEARLY: Final = 1.2
"""A strategy replaces the usual strategy only if faster by this factor: another seed changes the speed by less (up to
0.6 of 2.8 times with four workers)."""
_DEAR: Final = 0.1
"""Above this share of a minibatch's time, no strategy with an exchange after every minibatch is chosen."""


def strategy_choices() -> tuple[str, ...]:
    """Return the values of a training's option ``strategy``: ``auto`` and the names of all strategies."""
    return (AUTO, *strategy_names())


class Choice(NamedTuple):
    """Name of a strategy, and the reason of the choice: a line for the log."""

    name: str
    reason: str


def choose_strategy(n_workers: int, *, uneven: bool, exchange_share: float | None = None) -> Choice:
    """Return the strategy with which ``n_workers`` workers reach the accuracy of one worker first.

    Args:
        n_workers: p.
        uneven: Some workers may be slower than others, or die: those that wait for each other would wait for them.
        exchange_share: Seconds of an exchange by those of a minibatch, if they are known.
    """
    if n_workers == 1:
        return Choice(USUAL, "strategy easgd: with one worker all are plain training")
    # Small nets distinguish strategies least: a strategy needs measurements on all nets of the usual strategy.
    nets = {row.net for row in measured_near(USUAL, n_workers, uneven=uneven)}
    speeds: dict[str, float] = {}
    for name in _candidates(exchange_share):
        measured = measured_near(name, n_workers, uneven=uneven)
        if measured and {row.net for row in measured} == nets:
            speeds[name] = _speed(measured)
    best = max(speeds, key=lambda name: speeds[name], default=USUAL)
    name = best if speeds and speeds[best] > _CLEARLY * speeds[USUAL] else USUAL
    return Choice(name, f"strategy {name}: {_reason(name, n_workers, uneven=uneven, exchange_share=exchange_share)}")


def _candidates(exchange_share: float | None) -> Sequence[str]:
    is_dear = exchange_share is not None and exchange_share > _DEAR
    names = sorted({row.strategy for row in measured_rows()})
    return [name for name in names if not (is_dear and find_strategy(name).comm_period_one)]


def _speed(rows: Sequence[Measured]) -> float:
    """Return the speed against one worker, mean over the nets; a net without the accuracy counts as 0."""
    return fmean(row.times_faster or 0.0 for row in rows)


def _reason(name: str, n_workers: int, *, uneven: bool, exchange_share: float | None) -> str:
    crew = f"{n_workers} workers{' that may be unequally fast' if uneven else ' that are equally fast'}"
    dear = (
        f", an exchange of {share_text(exchange_share, 0)} of a minibatch's time" if exchange_share is not None else ""
    )
    measured = measured_near(name, n_workers, uneven=uneven)
    if not measured:
        return f"{crew}{dear}; nothing was measured for them"
    speed, lost = _speed(measured), mean_loss(measured)
    quick = f"it was {speed:.1f} times as fast as one worker to its accuracy less two points"
    faster = quick if speed else "nothing came within two points of one worker"
    return (
        f"{crew}{dear}; with {measured[0].workers} {faster}, and it ended {lost:.1f} points below one worker"
        " at the same clock"
    )
