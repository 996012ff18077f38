"""Rows that cannot be used, and splits that are left without any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from deepspark_ops.ingest.findings import Findings
from deepspark_ops.ingest.records import Rejection
from deepspark_ops.ingest.tables.listed_rows import ListedRows, find_in_list
from deepspark_ops.ingest.tables.row_batch import RowRecipe
from deepspark_ops.ingest.tables.row_files import Parts, PartSummary
from deepspark_ops.ingest.tables.split_rows import SplitRows
from deepspark_ops.shards.manifest import SplitName


def named_rejections(parts: Parts) -> tuple[dict[SplitName, tuple[Rejection, ...]], dict[SplitName, int]]:
    """Return the rows of each source that cannot be used: those that are named, and how many there are in all."""
    named: dict[SplitName, tuple[Rejection, ...]] = {}
    for split, summaries in parts.items():
        found, before = [], 0
        for part in summaries:
            for row, name, reason in part.rejects.named:
                found.append(Rejection(before + row, name or f"row {before + row:,}", None, reason))
            before += part.n_rows
        named[split] = tuple(found)
    return named, {split: sum(part.rejects.count for part in summaries) for split, summaries in parts.items()}


def list_findings(listed: ListedRows, held: Mapping[SplitName, SplitRows], parts: Sequence[PartSummary]) -> Findings:
    """Return what there is to say of a list of splits beside the rows that were read."""
    names = np.concatenate([np.empty(0, np.uint64), *(rows.column("name") for rows in held.values())])
    outside, before = [], 0
    for part in parts:
        outside += [(before + row, name) for row, name, _ in part.outside.named]
        before += part.n_rows
    return find_in_list(listed, names, outside, sum(part.outside.count for part in parts))


def asked_splits(rows: RowRecipe, parts: Parts) -> set[SplitName]:
    """Return the splits that must have rows; those of a column or a list are the ones that it names."""
    shares: dict[SplitName, float] = {"test": rows.test_fraction, "validation": rows.validation_fraction}
    if rows.listed is not None:
        return {*parts, *rows.listed.asked()}
    by_share = {split for split, share in shares.items() if share and rows.roles.split is None}
    return {"train", *parts, *by_share}
