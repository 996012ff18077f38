"""Labels that a source gives as names: which number each one is, the same in training and test set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from deepspark_ops.ingest.records import SourceIndex


def sorted_classes(names: Iterable[str]) -> tuple[str, ...]:
    """Return each name once, in the order of their labels: as text, or by value if all are whole numbers.

    Example:
        >>> sorted_classes(["dog", "cat", "dog"]), sorted_classes(["10", "9"])
        (('cat', 'dog'), ('9', '10'))
    """
    found = sorted(set(names))
    return tuple(sorted(found, key=int) if all(name.isdecimal() for name in found) else found)


def labels_of(texts: Sequence[str], names: Sequence[str]) -> list[int]:
    """Return the place of each text in ``names``; -1 for one that is not among them."""
    places = {name: place for place, name in enumerate(names)}
    return [places.get(text, -1) for text in texts]


def with_classes(index: SourceIndex, names: Sequence[str]) -> SourceIndex:
    """Return an index whose labels are places in ``names``; of a source that gives numbers, the same index.

    A record whose class is not among them gets the label -1.
    """
    if not index.are_names or tuple(names) == index.class_names:
        return index
    places = np.array(labels_of(index.class_names, names), np.int64)
    return replace(index, labels=places[index.labels])
