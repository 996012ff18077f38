"""Rows of a table whose features another row has, found by their hashes: named and counted, or left out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from deepspark_ops.ingest.findings import NAMED_OF_A_KIND, Finding, Findings
from deepspark_ops.ingest.tables.row_batch import RowRecipe
from deepspark_ops.ingest.tables.selection.split_rows import SplitRows
from deepspark_ops.shards.manifest import SPLITS, SplitName


def find_duplicate_rows(
    folder: Path, recipe: RowRecipe, splits: Mapping[SplitName, SplitRows]
) -> dict[SplitName, Findings]:
    """Return the rows whose features an earlier one has; training rows go first.

    The first thousand are looked up: a row with another label than the earlier one is counted as such among them.

    Args:
        folder: Of the runs.
        recipe: How their rows were read.
        splits: The rows that are taken; one that is taken several times is no duplicate of itself.
    """
    found: dict[SplitName, Findings] = {split: Findings() for split in splits}
    held = {split: rows.once() for split, rows in splits.items()}
    names = list(held)
    if not names:
        return found
    contents = np.concatenate([held[split].column("content") for split in names])
    starts = np.cumsum([0, *(held[split].n_rows for split in names)])
    order = np.argsort(contents, kind="stable")
    is_new = np.append(True, contents[order][1:] != contents[order][:-1])[: len(order)]
    again = np.flatnonzero(~is_new)
    if not len(again):
        return found
    first = order[np.maximum.accumulate(np.where(is_new, np.arange(len(order)), 0))]
    sides = np.repeat([SPLITS.index(split) for split in names], np.diff(starts))
    named = again[:NAMED_OF_A_KIND]
    for pair in zip(order[named].tolist(), first[named].tolist(), strict=True):
        looked = []
        for row in pair:
            number = int(np.searchsorted(starts, row, "right")) - 1
            looked.append((names[number], *held[names[number]].told(folder, recipe, row - int(starts[number]))))
        (split, name, label, position), (of_split, of_name, of_label, _) = looked
        same = "duplicate" if label == of_label else "duplicate_other_label"
        kind = same if split == of_split else f"duplicate_in_{split}"
        found[split].add(Finding(kind, name, f"has the features of {of_split} {of_name}", position))
    rest = again[NAMED_OF_A_KIND:]
    for split in splits:
        of_split = sides[order[rest]] == SPLITS.index(split)
        within = of_split & (sides[first[rest]] == SPLITS.index(split))
        for kind, count in (
            ("duplicate", int(within.sum())),
            (f"duplicate_in_{split}", int((of_split & ~within).sum())),
        ):
            if count:
                found[split].counts[kind] += count
    return found


def without_duplicates(
    folder: Path, recipe: RowRecipe, splits: Mapping[SplitName, SplitRows], *, across: bool
) -> tuple[dict[SplitName, SplitRows], dict[SplitName, Findings]]:
    """Return the rows of each split whose features no other one has; of equal ones the first in the order of the keys.

    Args:
        folder: Of the runs.
        recipe: How their rows were read.
        splits: In the order of ``SPLITS``.
        across: Also leave out validation rows with the features of a training row, and test rows with those of either.

    Returns:
        The rows that stay, and those left out, of which the first thousand of a split are named.
    """
    kept: dict[SplitName, SplitRows] = {}
    findings: dict[SplitName, Findings] = {}
    seen = np.empty(0, np.uint64)
    for split, held in splits.items():
        content = held.column("content")
        order = np.lexsort((held.column("state"), held.column("key"), content))
        is_again = np.zeros(len(content), bool)
        is_again[order[1:]] = content[order][1:] == content[order][:-1]
        is_across = np.isin(content, seen) if across else np.zeros(len(content), bool)
        out = np.flatnonzero(is_again | is_across)
        findings[split] = Findings()
        for place in out[:NAMED_OF_A_KIND].tolist():
            name, _, position = held.told(folder, recipe, place)
            of = "a row of a set before" if is_across[place] else f"another {split} row"
            findings[split].add(Finding("duplicate_left_out", name, f"has the features of {of}", position))
        if len(out):
            findings[split].counts["duplicate_left_out"] = len(out)
        kept[split] = held.taken(np.flatnonzero(~(is_again | is_across)))
        seen = np.union1d(seen, content)
    return kept, findings
