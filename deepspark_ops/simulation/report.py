"""The answer of stage simulate: rows, groups and advice for screen, page and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Final

from deepspark_ops.planning.step_time import StepSource
from deepspark_ops.simulation.results import Frozen, VirtualResult, time_to

REPORT_VERSION: Final = 1
SINGLE_RUN: Final = "single_worker"
"""Strategy of a row with one worker: plain training with any strategy."""
_POINT: Final = 0.01
"""Default distance of the target below one worker's last accuracy."""


class Row(VirtualResult):
    """One run; with one worker the strategy is ``single_worker``.

    Attributes:
        time_to_target: Virtual seconds until the first test that reached the target; None if none did.
    """

    time_to_target: float | None


class Group(Frozen):
    """The runs of one strategy with one number of workers, over all seeds.

    Attributes:
        strategy: Theirs.
        workers: Theirs.
        rows: One per seed.
        accuracy: Mean of those that did not fail; None if all failed.
        lowest: Of the same.
        highest: Of the same.
        virtual_s: Mean.
        time_to_target: Mean; None unless all reached it.
        speedup: Time to the target of one worker divided by this one; None unless both are known.
    """

    strategy: str
    workers: int
    rows: tuple[Row, ...]
    accuracy: float | None
    lowest: float | None
    highest: float | None
    virtual_s: float
    time_to_target: float | None
    speedup: float | None

    @property
    def comm_period(self) -> int:
        """The longest tau of all runs."""
        return max(row.comm_period for row in self.rows)

    @property
    def tau(self) -> str:
        """The longest tau of all runs, in a tree of centers of workers and of hosts."""
        of_hosts = max(row.root_comm_period for row in self.rows)
        return f"{self.comm_period}, hosts {of_hosts}" if of_hosts else str(self.comm_period)

    @property
    def staleness(self) -> float:
        """Mean over the runs."""
        return fmean(row.staleness for row in self.rows)

    @property
    def center_load(self) -> float:
        """The largest share of all runs."""
        return max(row.center_load for row in self.rows)

    @property
    def exchange_share(self) -> float:
        """The largest share of all runs."""
        return max(row.exchange_share for row in self.rows)

    @property
    def bytes(self) -> int:
        """Mean over the runs."""
        return round(fmean(row.bytes for row in self.rows))


class Advice(Frozen):
    """A conclusion and its reason.

    Attributes:
        text: What to do, or what to know.
        reason: The numbers that it follows from.
    """

    text: str
    reason: str


class SimulationReport(Frozen):
    """The answer of stage simulate.

    Attributes:
        format_version: Of this report as JSON.
        solver: The file.
        net: The net's name.
        n_params: Length of the parameter vector.
        step_ms: Virtual time of a minibatch.
        step_source: ``given``, or an ``estimate`` by operations.
        network: As given.
        stragglers: Share of slow workers.
        straggler_factor: How many times slower they are.
        deaths: Workers killed in each run.
        figure: Output of the test net that is told.
        higher_is_better: Whether it is a share of right answers.
        target: Value whose time is told; None where nothing says one.
        rows: One per run.
        groups: The same, over seeds.
        advice: What follows.
        notes: What was assumed.
    """

    format_version: int
    solver: str
    net: str
    n_params: int
    step_ms: float
    step_source: StepSource
    network: str
    stragglers: float
    straggler_factor: float
    deaths: int
    figure: str
    higher_is_better: bool
    target: float | None
    rows: tuple[Row, ...]
    groups: tuple[Group, ...]
    advice: tuple[Advice, ...]
    notes: tuple[str, ...]


def choose_target(results: Sequence[VirtualResult]) -> float | None:
    """Return the default target: a point below one worker's last accuracy, else a point below the best accuracy.

    For a loss, a hundredth above the loss. None if every run failed or had no test.
    """
    single_runs = [result for result in results if result.workers == 1]
    ends = [result.accuracy for result in single_runs or results if result.accuracy is not None]
    if not ends:
        return None
    if results[0].higher_is_better:
        return (fmean(ends) if single_runs else max(ends)) - _POINT
    return (fmean(ends) if single_runs else min(ends)) * (1 + _POINT)


def row_of(result: VirtualResult, target: float | None) -> Row:
    """Return the row of a result."""
    strategy = SINGLE_RUN if result.workers == 1 else result.strategy
    reached = None if target is None else time_to(result.curve, target, higher_is_better=result.higher_is_better)
    return Row(**{**dict(result), "strategy": strategy, "time_to_target": reached})


def groups_of(rows: Sequence[Row]) -> tuple[Group, ...]:
    """Return the rows by strategy and number of workers, in the order of their first row."""
    by_kind: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        by_kind.setdefault((row.strategy, row.workers), []).append(row)
    single_worker_s = next((_mean_time(results) for (_, workers), results in by_kind.items() if workers == 1), None)
    return tuple(_group(kind, results, single_worker_s) for kind, results in by_kind.items())


def _mean_time(rows: Sequence[Row]) -> float | None:
    times = [row.time_to_target for row in rows if row.time_to_target is not None]
    return fmean(times) if len(times) == len(rows) else None


def _group(kind: tuple[str, int], rows: Sequence[Row], alone_s: float | None) -> Group:
    ends = [row.accuracy for row in rows if row.accuracy is not None]
    reached = _mean_time(rows)
    return Group(
        strategy=kind[0],
        workers=kind[1],
        rows=tuple(rows),
        accuracy=fmean(ends) if ends else None,
        lowest=min(ends, default=None),
        highest=max(ends, default=None),
        virtual_s=fmean(row.virtual_s for row in rows),
        time_to_target=reached,
        speedup=alone_s / reached if alone_s is not None and reached else None,
    )
