"""The classes of a table: how many there are, and which class each text is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.ingest.named_classes import sorted_classes
from deepspark_ops.ingest.plan import MAX_UNASKED_CLASSES
from deepspark_ops.ingest.tables.row_batch import RowRecipe
from deepspark_ops.ingest.tables.row_files import PartSummary
from deepspark_ops.ingest.tables.split_rows import CODES_SUFFIX

FEW_CLASSES = 1000
"""Whole labels below this, from 0, are classes unless label_kind says otherwise."""


def text_classes(parts: Sequence[PartSummary]) -> tuple[str, ...]:
    """Return the classes of the training source in the order of their labels, where labels are text."""
    return sorted_classes(name for part in parts for name in part.class_names)


def count_classes(config: IngestConfig, rows: RowRecipe, parts: Sequence[PartSummary], names: Sequence[str]) -> int:
    """Return how many classes there are; 0 where labels are values."""
    largest = max((part.largest_label for part in parts), default=-np.inf)
    smallest = min((part.smallest_label for part in parts), default=np.inf)
    kind = rows.label_kind
    if len(rows.roles.labels) > 1:
        return 0
    if kind == "auto":
        are_few = smallest >= 0 and largest < FEW_CLASSES and all(part.are_whole for part in parts)
        kind = "class" if rows.n_classes is not None or names or are_few else "value"
    if kind == "value":
        return 0
    if rows.n_classes is not None or names:
        return rows.n_classes or len(names)
    if largest >= MAX_UNASKED_CLASSES:
        msg = f"source={config.source}: the largest label is {largest:,.0f}; give n_classes, so that wrong labels show"
        raise ConfigError(msg)
    return max(1, int(largest) + 1) if np.isfinite(largest) else 1


def write_codes(parts: Sequence[PartSummary], class_names: Sequence[str], folder: Path) -> None:
    """Write beside each part's rows which class each of its numbers is."""
    places = {name: float(place) for place, name in enumerate(class_names)}
    for part in parts:
        codes = np.array([places[name] for name in part.class_names], np.float64)
        for file in {run.file for run in part.runs}:
            np.save((folder / file).with_suffix(CODES_SUFFIX), codes)
