"""tau of a worker or a host: fixed, scheduled, chosen from measured times, or a loss budget.

Pure arithmetic; worker loop and ``TreeTransfer`` pass measurements in. The worker loop logs the returned reasons.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import ceil, isfinite
from statistics import median
from typing import ClassVar, Literal

from deepspark_ops.sizes import share_text

MAX_COMM_PERIOD = 64
"""Larger periods cost accuracy (cifar10_quick lost 5 points from tau 1 to 10) and buy next to no time."""
MAX_PERIOD_GROWTH = 16
"""Without a bound, workers would not exchange again once the loss is near 0."""
_FIRST_DECISION = 4
_DECIDE_EVERY = 64
_WINDOW = 32


def scheduled(entries: Sequence[tuple[int, float]], clock: int) -> float:
    """Return the value of a schedule, (clock, value) ascending from 0 on, at a clock.

    Example:
        >>> [scheduled([(0, 1.0), (100, 4.0)], clock) for clock in (0, 99, 100, 5000)]
        [1.0, 1.0, 4.0, 4.0]
    """
    return next(value for start, value in reversed(entries) if start <= clock)


class CommPeriod:
    """tau, the minibatches between two exchanges: fixed, or chosen from measured times. Not thread-safe.

    ``auto`` starts at the least tau and measures. ``auto`` takes the smallest tau with ``exchange / (tau * step +
    exchange)`` at or below ``share``, at most ``MAX_COMM_PERIOD``. Measurements go on, and tau changes again when the
    result moves by half or more, so that noise does not fill the log.
    """

    _cost_text: ClassVar[str] = "comm_period {}: an exchange takes {:.2f} ms, a minibatch {:.2f} ms"

    def __init__(self, setting: Literal["auto"] | int, *, least: int = 1, share: float = 1.0) -> None:
        """Take TrainConfig's ``comm_period``; for ``auto`` the strategy's least and share (``most_exchange_share``)."""
        self._auto = setting == "auto"
        self._share = share
        self._least = least
        self.value = least if setting == "auto" else int(setting)
        self._n_observed = 0
        self._step_s: deque[float] = deque(maxlen=_WINDOW)
        self._exchange_s: deque[float] = deque(maxlen=_WINDOW)

    @property
    def is_due(self) -> bool:
        """Whether the steps since the last exchange are enough for the next; here, the steps of any grant."""
        return True

    @property
    def is_known_ahead(self) -> bool:
        """Whether ``value`` does not depend on the losses of the steps since the last exchange."""
        return True

    @property
    def only_measures(self) -> bool:
        """Whether the steps of a period move no parameters: then a computed grant needs no exchange."""
        return False

    def reach(self, clock: int) -> str | None:
        """Note the clock of the next steps; return the reason for a change of ``value``."""
        return None

    def spend(self, losses: Sequence[float]) -> None:
        """Take the losses of some steps since the last exchange."""

    def exchanged(self) -> str | None:
        """Begin the next period, also after an early end; return the reason for a change of length."""
        return None

    @property
    def proposal(self) -> int:
        """This worker's choice of a tau for all workers; 0 if each worker chooses its own tau."""
        return 0

    def agree(self, comm_period: int) -> str | None:
        """Take the tau of all workers, 0 for the worker's own; return the reason for a change of ``value``."""
        return None

    def observe(self, *, n_steps: int, compute_s: float, exchange_s: float) -> str | None:
        """Take the times of a grant; return the reason for a change of ``value``.

        Args:
            n_steps: Minibatches of the grant.
            compute_s: Seconds for all minibatches, without waiting for data.
            exchange_s: Seconds for the grant, the exchange and the acknowledgement, without waiting for others.
        """
        if not self._auto or n_steps == 0:
            return None
        self._n_observed += 1
        if self._n_observed == 1:  # the first call also optimises the graph
            return None
        self._step_s.append(compute_s / n_steps)
        self._exchange_s.append(exchange_s)
        is_due = self._n_observed == 1 + _FIRST_DECISION or self._n_observed % _DECIDE_EVERY == 0
        return self._decide() if is_due else None

    def _decide(self) -> str | None:
        step_s, exchange_s = median(self._step_s), median(self._exchange_s)
        period = max(self._least, smallest_comm_period(step_s, exchange_s, self._share))
        if 2 * max(period, self.value) < 3 * min(period, self.value) or period == self.value:
            return None
        share = exchange_s / (period * step_s + exchange_s)
        reason = self._cost_text.format(period, exchange_s * 1e3, step_s * 1e3)
        return self._choose(period, f"{reason}; exchanging costs {share_text(share)} of the time")

    def _choose(self, period: int, reason: str) -> str | None:
        self.value = period
        return reason


class RootPeriod(CommPeriod):
    """tau of a host in a tree of centers, in exchanges of each of the host's workers. Not thread-safe.

    ``auto``: with n workers on the host, a step is one exchange period of each, n periods of a worker's time. One of
    the workers waits for the exchange of host and root.
    """

    _cost_text = (
        "root_comm_period {}: an exchange of host and root takes {:.2f} ms,"
        " a period of the host's workers {:.2f} ms in all"
    )


class AgreedPeriod(CommPeriod):
    """``auto`` for workers that wait for each other: each worker proposes a tau, all take the longest.

    Not thread-safe.
    """

    def __init__(self, least: int, share: float) -> None:
        """Begin with the least tau, like all workers."""
        super().__init__("auto", least=least, share=share)
        self._proposal, self._reason = least, f"comm_period {least}: the least"

    @property
    def proposal(self) -> int:
        """See ``CommPeriod``."""
        return self._proposal

    def agree(self, comm_period: int) -> str | None:
        """See ``CommPeriod``."""
        if comm_period in (0, self.value):
            return None
        self.value = comm_period
        return self._reason if comm_period == self._proposal else f"comm_period {comm_period}: another worker needs it"

    def _choose(self, period: int, reason: str) -> None:
        self._proposal, self._reason = period, reason


class ScheduledPeriod(CommPeriod):
    """A period by a schedule of the clock. Not thread-safe."""

    def __init__(self, entries: Sequence[tuple[int, float]], clock: int) -> None:
        """Begin at a clock; ``entries`` are (clock, period), from 0 on and ascending."""
        super().__init__(int(scheduled(entries, clock)))
        self._entries = entries

    def reach(self, clock: int) -> str | None:
        """See ``CommPeriod``."""
        old_value, self.value = self.value, int(scheduled(self._entries, clock))
        return f"comm_period {self.value}, was {old_value}: as scheduled" if self.value != old_value else None


class LossBudget(CommPeriod):
    """A period that ends when the period's summed loss exceeds the sum of the first period. Not thread-safe.

    Kim, Park, Jang and Yoon 2016: as the loss falls, workers exchange less often. The worker asks for the steps that
    fit at the last loss, so the exchange follows the step that exceeds the budget. If the loss rises within a grant,
    the exchange follows the grant.
    """

    def __init__(self, first: int) -> None:
        """Begin with a period of ``first`` minibatches; the period's loss is the budget."""
        super().__init__(first)
        self._first = first
        self._longest = MAX_PERIOD_GROWTH * first
        self._budget: float | None = None
        self._spent, self._steps, self._last_loss = 0.0, 0, 0.0
        self._reported = first

    @property
    def is_due(self) -> bool:
        """Whether the budget is exceeded, or the first period over."""
        return self.value == 0

    @property
    def is_known_ahead(self) -> bool:
        """See ``CommPeriod``."""
        return False

    def spend(self, losses: Sequence[float]) -> None:
        """Add up the losses that are finite, and ask next for the steps that probably fit."""
        finite_losses = [loss for loss in losses if isfinite(loss)]
        self._spent += sum(finite_losses)
        self._steps += len(losses)
        self._last_loss = finite_losses[-1] if finite_losses else self._last_loss
        if self._budget is None:
            self.value -= len(losses)
        elif self._spent > self._budget or self._steps >= self._longest:
            self.value = 0
        else:
            self.value = self._fitting(self._budget - self._spent, self._longest - self._steps)

    def exchanged(self) -> str | None:
        """Begin the next period; the reason names a length that has changed by half.

        A period cut short (by a snapshot, a test, the end of the run) does not count for the budget.
        """
        was_whole = self.is_due
        if self._budget is None and was_whole:
            self._budget = self._spent
        steps, self._spent, self._steps = self._steps, 0.0, 0
        self.value = self._first if self._budget is None else self._fitting(self._budget, self._longest)
        if not was_whole or 2 * max(steps, self._reported) < 3 * min(steps, self._reported):
            return None
        self._reported = steps
        return f"comm_period {steps}: so many minibatches for the loss of the first period, {self._budget:.4g}"

    def _fitting(self, budget: float, limit: int) -> int:
        """Return the fewest steps at the last loss that exceed ``budget``."""
        if self._last_loss <= 0.0:
            return limit
        return max(1, min(limit, int(budget / self._last_loss) + 1))


class FixedSet(CommPeriod):
    """A period with a fixed number of minibatches in any number of grants, for measurements. Not thread-safe."""

    def __init__(self, n_steps: int) -> None:
        """Begin the first period."""
        super().__init__(n_steps)
        self._n_steps = n_steps

    @property
    def is_due(self) -> bool:
        """Whether all minibatches of the period are done."""
        return self.value == 0

    @property
    def only_measures(self) -> bool:
        """Always: a measurement over a part of the set is not used."""
        return True

    def spend(self, losses: Sequence[float]) -> None:
        """Count the minibatches; the next grants take the rest."""
        self.value -= len(losses)

    def exchanged(self) -> str | None:
        """Begin anew."""
        self.value = self._n_steps
        return None


def smallest_comm_period(step_s: float, exchange_s: float, share: float) -> int:
    """Return the smallest tau in [1, MAX_COMM_PERIOD] whose exchange costs at most ``share`` of the time.

    Example:
        >>> smallest_comm_period(0.010, 0.001, share=0.02), smallest_comm_period(0.010, 0.001, share=0.1)
        (5, 1)
        >>> smallest_comm_period(1.0, 0.001, share=0.02), smallest_comm_period(1e-5, 1.0, share=0.02)
        (1, 64)
    """
    needed = exchange_s * (1.0 / share - 1.0) / max(step_s, 1e-9)
    return min(MAX_COMM_PERIOD, max(1, ceil(needed)))
