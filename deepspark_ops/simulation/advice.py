"""The conclusions of a simulation: strategy and number of workers, with the numbers behind each conclusion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from deepspark_ops.planning.plan_view import duration
from deepspark_ops.simulation.report import Advice, Group, SimulationReport
from deepspark_ops.sizes import share_text

_WORTH_IT = 0.5
"""More workers pay from this share of the speed without losses on."""
_NOTICED = 0.005
"""A difference of half a point counts as no noise."""
_BUSY = 0.85
_WAITS = 0.2


def advice_of(report: SimulationReport) -> Iterator[Advice]:
    """Yield the conclusions from a report's groups."""
    several = [group for group in report.groups if group.workers > 1]
    yield from _fastest(report, several)
    yield from _too_many(several)
    yield from _losses(report, several)
    yield from _waiting(several)
    for group in report.groups:
        failed = [row for row in group.rows if row.failure is not None]
        if failed:
            which = f"{len(failed)} of {len(group.rows)} seeds" if len(group.rows) > 1 else "the run"
            yield Advice(text=f"do not take {_name(group)} with these options", reason=f"{which}: {failed[0].failure}")


def value_text(report: SimulationReport, value: float | None) -> str:
    """Return a value of the figure as text; empty without a value."""
    if value is None:
        return ""
    return share_text(value, 2) if report.higher_is_better else f"{value:.4g}"


def _name(group: Group) -> str:
    return f"{group.strategy} with {group.workers} workers" if group.workers > 1 else "one worker"


def _fastest(report: SimulationReport, groups: Sequence[Group]) -> Iterator[Advice]:
    reached = [(group.time_to_target, group) for group in groups if group.time_to_target is not None]
    if not reached:
        if groups and report.target is not None:
            text = "take fewer workers, a longer run or another strategy"
            yield Advice(text=text, reason=f"nothing with several workers reached {value_text(report, report.target)}")
        return
    seconds, best = min(reached, key=lambda pair: (pair[0], pair[1].workers))
    than = f", {best.speedup:.2g} times faster than one worker" if best.speedup is not None else ""
    yield Advice(
        text=f"take {_name(best)}",
        reason=f"first at {value_text(report, report.target)}, after {duration(seconds)}{than}",
    )


def _too_many(groups: Sequence[Group]) -> Iterator[Advice]:
    """Yield advice for strategies with further workers that no longer pay."""
    for strategy in dict.fromkeys(group.strategy for group in groups):
        of_strategy = sorted((group for group in groups if group.strategy == strategy), key=lambda group: group.workers)
        for fewer, more in pairwise(of_strategy):
            if fewer.time_to_target is None or more.time_to_target is None:
                continue
            gained = fewer.time_to_target / more.time_to_target
            if gained < 1.0 + _WORTH_IT * (more.workers / fewer.workers - 1.0):
                times = f"{more.workers / fewer.workers:g} times as many"
                text = f"{strategy}: stay at {fewer.workers} workers"
                yield Advice(text=text, reason=f"{times} reach the target {gained:.2g} times as fast")
                break


def _losses(report: SimulationReport, groups: Sequence[Group]) -> Iterator[Advice]:
    single_run = next((group.accuracy for group in report.groups if group.workers == 1), None)
    if single_run is None or not report.higher_is_better:
        return
    for strategy in dict.fromkeys(group.strategy for group in groups):
        lost = [
            group
            for group in groups
            if group.strategy == strategy and group.accuracy is not None and single_run - group.accuracy > _NOTICED
        ]
        if lost:
            first = min(lost, key=lambda group: group.workers)
            assert first.accuracy is not None
            yield Advice(
                text=f"{strategy}: from {first.workers} workers on, give the run more minibatches for its accuracy",
                reason=f"{100 * (single_run - first.accuracy):.1f} points below one worker after as many minibatches",
            )


def _waiting(groups: Sequence[Group]) -> Iterator[Advice]:
    for group in groups:
        load, share = group.center_load, group.exchange_share
        if load > _BUSY:
            text = f"{_name(group)}: take a longer tau or fewer workers"
            yield Advice(text=text, reason=f"the center is busy {share_text(load, 0)} of the time, and workers queue")
        elif share > _WAITS and group.rows[0].staleness == 0.0:
            text = f"{group.strategy}: with {group.workers} workers, an asynchronous strategy wastes less time"
            slow = group.rows[0].slow_workers
            why = f", {slow} of them slow" if slow else ""
            yield Advice(
                text=text, reason=f"workers spend {share_text(share, 0)} of their time waiting and exchanging{why}"
            )
