"""Feeds a sum of figures as an evaluation does: batch after batch."""

from __future__ import annotations

from typing import Any, TypeVar

Total = TypeVar("Total")


def sum_in_batches(total: Total, answers: Any, targets: Any, *, batch: int = 11) -> Total:
    """Return ``total`` after all batches of answers and targets."""
    add = total.add  # type: ignore[attr-defined]
    for start in range(0, len(targets), batch):
        rows = slice(start, start + batch)
        add(answers[rows], targets[rows], start=start)
    return total
