"""Rows of a table whose features another row has, found by their hashes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from deepspark_ops.ingest.findings import NAMED_OF_A_KIND, Finding, Findings
from deepspark_ops.ingest.tables.row_batch import RowRecipe
from deepspark_ops.ingest.tables.row_files import Run, read_keys, read_run
from deepspark_ops.shards.manifest import SPLITS, SplitName


def find_duplicate_rows(
    folder: Path, recipe: RowRecipe, runs: Mapping[SplitName, Sequence[Run]]
) -> dict[SplitName, Findings]:
    """Return the rows whose features an earlier one has; training rows go first.

    The first thousand are looked up: a row with another label than the earlier one is counted as such among them.

    Args:
        folder: Of the runs.
        recipe: How their rows were read.
        runs: Of each split.
    """
    found: dict[SplitName, Findings] = {split: Findings() for split in runs}
    places = [(split, run) for split in runs for run in runs[split]]
    if not places:
        return found
    contents = np.concatenate([read_keys(folder, run)[1] for _, run in places])
    starts = np.cumsum([0, *(run.n_rows for _, run in places)])
    order = np.argsort(contents, kind="stable")
    is_new = np.append(True, contents[order][1:] != contents[order][:-1])
    again = np.flatnonzero(~is_new)
    if not len(again):
        return found
    first = order[np.maximum.accumulate(np.where(is_new, np.arange(len(order)), 0))]
    sides = np.repeat([SPLITS.index(split) for split, _ in places], [run.n_rows for _, run in places])
    named = again[:NAMED_OF_A_KIND]
    for row, earlier in zip(order[named].tolist(), first[named].tolist(), strict=True):
        _name(folder, recipe, places, starts, (row, earlier), found)
    rest = again[NAMED_OF_A_KIND:]
    for split in runs:
        of_split = sides[order[rest]] == SPLITS.index(split)
        within = of_split & (sides[first[rest]] == SPLITS.index(split))
        for kind, count in (
            ("duplicate", int(within.sum())),
            (f"duplicate_in_{split}", int((of_split & ~within).sum())),
        ):
            if count:
                found[split].counts[kind] += count
    return found


def _name(
    folder: Path,
    recipe: RowRecipe,
    places: Sequence[tuple[SplitName, Run]],
    starts: npt.NDArray[np.int64],
    pair: tuple[int, int],
    found: dict[SplitName, Findings],
) -> None:
    looked = []
    for row in pair:
        place = int(np.searchsorted(starts, row, "right")) - 1
        split, run = places[place]
        at = row - int(starts[place])
        held = read_run(folder, run, recipe, at, at + 1)[0]
        row_id = held["id"] if recipe.roles.id is not None else None
        name = row_id.decode("utf-8", "replace") if isinstance(row_id, bytes) else row_id
        shown = f"row {int(held['position'])} of part {run.part}" if name is None else str(name)
        looked.append((split, shown, held["label"].tolist(), int(held["position"])))
    (split, name, label, position), (of_split, of_name, of_label, _) = looked
    if split != of_split:
        kind = f"duplicate_in_{split}"
    else:
        kind = "duplicate" if label == of_label else "duplicate_other_label"
    text = f"has the features of {of_split} {of_name}"
    found[split].add(Finding(kind, name, text, position))
