"""Grants of minibatches on the clock of a run, and the boundaries that no grant crosses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deepspark_ops.errors import ConfigError


@dataclass(frozen=True)
class Schedule:
    """When the run ends, tests and saves; numbers and meaning are Caffe's (solver.cpp, Solver::Step and Solve).

    Attributes:
        max_iter: Steps of the whole run.
        test_interval: Tests run before step k when k is a multiple; 0 never.
        test_initialization: Whether step 0 counts as a test boundary.
        snapshot: A snapshot is taken after step N-1 when N is a multiple; 0 never.
        snapshot_after_train: Take one at ``max_iter`` too.
        first: Clock to start from (resume).
    """

    max_iter: int
    test_interval: int = 0
    test_initialization: bool = True
    snapshot: int = 0
    snapshot_after_train: bool = True
    first: int = 0

    def __post_init__(self) -> None:
        """Refuse negative numbers.

        Raises:
            ConfigError: Names the field.
        """
        for name in ("max_iter", "test_interval", "snapshot", "first"):
            if getattr(self, name) < 0:
                msg = f"{name}={getattr(self, name)}: must not be negative"
                raise ConfigError(msg)

    def tests_at(self, step: int) -> bool:
        """Return whether test nets run before ``step``; at ``max_iter`` this is Caffe's last test."""
        if not self.test_interval or step % self.test_interval:
            return False
        return step > 0 or self.test_initialization or self.max_iter == 0

    def cut(self, start: int, stop: int) -> int:
        """Return the end of a grant from ``start`` to at most ``stop``, without a boundary inside."""
        for period in (self.test_interval, self.snapshot):
            if period:
                stop = min(stop, (start // period + 1) * period)
        return min(stop, self.max_iter)

    def next_snapshot(self, clock: int) -> int | None:
        """Return the first clock above ``clock`` with a snapshot; None without a further snapshot."""
        if clock >= self.max_iter:
            return None
        following = (clock // self.snapshot + 1) * self.snapshot if self.snapshot else self.max_iter + 1
        if following <= self.max_iter:
            return following
        return self.max_iter if self.snapshot_after_train else None


@dataclass(frozen=True)
class Grant:
    """The steps ``[start, start + count)`` of one worker.

    The worker acknowledges a grant after steps and exchange, also with a ``count`` of 0. A request before the
    acknowledgement returns the same grant.

    Attributes:
        start: Clock of the first step; learning rate and snapshot numbers see this.
        count: Steps; 0 for a grant that only tests or asks for state.
        tests: Run the test nets before stepping.
        state_for: Send your state for the snapshot of this number before stepping; 0: none is asked for.
        id: Names the grant.
        live_workers: Workers that are there as the grant is issued, this worker included; 0: unknown.
    """

    start: int
    count: int
    tests: bool = False
    state_for: int = 0
    id: int = 0
    live_workers: int = field(default=0, compare=False)

    @property
    def stop(self) -> int:
        """One past the last step."""
        return self.start + self.count


@dataclass(frozen=True)
class Wait:
    """No steps are free now: request again after ``seconds``.

    Attributes:
        seconds: See above.
        is_expected: The next round does not begin without this worker: it only waits for others of the last one to say
            that they are done. Else they may go on without it.
    """

    seconds: float
    is_expected: bool = False


@dataclass(frozen=True)
class Finished:
    """Every step is acknowledged, and all requested states and tests have arrived: leave."""


GrantAnswer = Grant | Wait | Finished


def answer_to_json(answer: GrantAnswer) -> dict[str, Any]:
    """Return an answer as plain JSON values."""
    if isinstance(answer, Grant):
        return {"grant": {**vars(answer)}}
    if isinstance(answer, Wait):
        return {"wait_s": answer.seconds, "is_expected": answer.is_expected}
    return {"finished": True}


def answer_from_json(plain: Mapping[str, Any]) -> GrantAnswer:
    """Inverse of ``answer_to_json``."""
    if "grant" in plain:
        return Grant(**plain["grant"])
    return Wait(plain["wait_s"], plain["is_expected"]) if "wait_s" in plain else Finished()
