"""The result of a comparison of two nets on the same samples."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gain:
    """How much better a candidate is than what is in production.

    Attributes:
        value: Mean gain per sample; positive is better: a share for accuracy, nats for loss.
        interval: Two-sided interval of ``value`` at ``level``; None where too few groups allow none.
        level: Share of intervals that hold the true gain.
        p_value: One-sided.
        n_groups: Groups of samples that were compared; None where samples are independent.
    """

    value: float
    interval: tuple[float, float] | None
    level: float
    p_value: float
    n_groups: int | None = None
