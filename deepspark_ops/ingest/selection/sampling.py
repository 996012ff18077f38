"""How many records of each class are taken: a stable sample of all, and training sets whose classes weigh the same."""

from __future__ import annotations

from typing import Literal

import numpy as np

from deepspark_ops.ingest.records import Positions
from deepspark_ops.ingest.selection.row_hash import Hashes

Balance = Literal["none", "oversample", "undersample"]


def stable_sample(labels: Positions, hashes: Hashes, n: int) -> Positions:
    """Return the places of ``n`` records, ascending: of each class its share, those with the lowest hashes.

    A record's place in the sample depends on its own hash, so a grown source changes few of them.

    Args:
        labels: (m,) class of each record.
        hashes: (m,) of each record's name.
        n: So many are wanted; all are taken if there are no more.

    Example:
        >>> stable_sample(np.array([0, 0, 0, 0, 1, 1]), np.array([5, 1, 3, 9, 8, 2], np.uint64), 3).tolist()
        [1, 2, 5]
    """
    if n >= len(labels):
        return np.arange(len(labels))
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    quotas = _shares(counts, n)
    order, rank = _by_hash(classes, hashes, counts)
    sample: Positions = np.sort(order[rank < quotas[classes[order]]])
    return sample


def balanced(labels: Positions, hashes: Hashes, how: Balance) -> Positions:
    """Return the indexes of records such that all classes with records have the same size.

    ``undersample`` takes the records with the lowest hashes, as many per class as the smallest class has.
    ``oversample`` repeats records up to the size of the largest class; the lowest hashes get the additional copies.

    Returns:
        Ascending; with ``oversample`` an index occurs once per copy of the record.

    Example:
        >>> labels, hashes = np.array([0, 1, 0, 0]), np.array([3, 7, 1, 2], np.uint64)
        >>> balanced(labels, hashes, "oversample").tolist(), balanced(labels, hashes, "undersample").tolist()
        ([0, 1, 1, 1, 2, 3], [1, 2])
    """
    if how == "none" or not len(labels):
        return np.arange(len(labels))
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    order, rank = _by_hash(classes, hashes, counts)
    size = counts[classes[order]]
    if how == "undersample":
        sample: Positions = np.sort(order[rank < counts.min()])
        return sample
    times = counts.max() // size + (rank < counts.max() % size)
    repeated: Positions = np.sort(np.repeat(order, times))
    return repeated


def _by_hash(classes: Positions, hashes: Hashes, counts: Positions) -> tuple[Positions, Positions]:
    """Return the places by class, then by hash, and each one's rank within its class."""
    order = np.lexsort((np.arange(len(classes)), hashes, classes))
    starts = np.cumsum(counts) - counts
    return order, np.arange(len(classes)) - starts[classes[order]]


def _shares(counts: Positions, n: int) -> Positions:
    """Return how many of each class: its share of ``n`` by largest remainder, at least one where ``n`` allows it."""
    exact = counts * n / counts.sum()
    quotas: Positions = np.floor(exact).astype(np.int64)
    if n >= len(counts):
        quotas = np.maximum(quotas, 1)
    while quotas.sum() > n:  # what the smallest classes got too much
        quotas[np.argmax(quotas - exact - (quotas == 1) * n)] -= 1
    order = np.argsort(quotas - exact, kind="stable")
    quotas[order[: n - quotas.sum()]] += 1
    return quotas
