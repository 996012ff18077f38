"""Work for many items: here, one after the other, or on many machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Spread = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
"""Does work for each item, maybe on many machines, and returns the results in the items' order."""


def one_by_one(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Do the work here: the ``Spread`` of a table that is small."""
    return [work(item) for item in items]
