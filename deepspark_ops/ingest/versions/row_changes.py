"""What has changed between a dataset made of a table and the table: by hashes, whatever the number of rows."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest.records import Positions
from deepspark_ops.ingest.selection.row_hash import Hashes, combined, mixed
from deepspark_ops.ingest.versions.base import found_to_go_on
from deepspark_ops.ingest.versions.changes import ChangeCounts, shards_that_stay
from deepspark_ops.shards.excluded_rows import as_ranges, kept_rows
from deepspark_ops.shards.manifest import DatasetManifest, ShardRecord, SplitName
from deepspark_ops.shards.row_records import RowRecords, read_row_records
from deepspark_ops.shards.table_columns import TableColumns

_log = logging.getLogger(__name__)
_MEASURED: Final = frozenset({"mean", "std"})
"""What the first version measured; everything else about the columns must be the same."""


@dataclass(frozen=True)
class TableBase:
    """A dataset made of a table whose shards may be named again.

    Attributes:
        folder: The dataset.
        manifests: Of its splits.
        records: Of each shard of a split, in the manifest's order.
        columns: How its features were standardised.
    """

    folder: Path
    manifests: Mapping[SplitName, DatasetManifest]
    records: Mapping[SplitName, Sequence[RowRecords]]
    columns: TableColumns

    @property
    def version(self) -> int:
        """Of the dataset that goes on from it."""
        return self.manifests["train"].version + 1


def find_table_base(config: IngestConfig, options: Mapping[str, Any]) -> TableBase | None:
    """Return the dataset in ``previous``, else in ``output``, if an ingestion of a table's features can go on from it.

    Args:
        config: What is asked for.
        options: Those that decide what samples are, of the recipe.
    """
    found = found_to_go_on(config, options, read_row_records, of_table=True)
    if found is None:
        return None
    columns = found[1]["train"].table
    assert columns is not None
    return TableBase(*found, columns)


def columns_stay(base: TableBase, columns: TableColumns) -> bool:
    """Whether rows of the base hold the same columns; the log says what differs."""
    before, now = (one.model_dump(mode="json", exclude=set(_MEASURED)) for one in (base.columns, columns))
    differing = [name for name in now if now[name] != before[name]]
    if differing:
        _log.info("ingest: %s is written anew: the table has other %s", base.folder, ", ".join(differing))
    return not differing


@dataclass(frozen=True)
class RowChange(ChangeCounts):
    """How a split is made of an earlier one.

    Attributes:
        carried: Shards that stay, with the rows that do not count any more.
        places: Places of the wanted rows that are in them, shard by shard, in their order.
        added: Places of the wanted rows that are to be written, ascending.
    """

    carried: tuple[ShardRecord, ...]
    places: Positions
    added: Positions


def find_row_changes(base: TableBase, split: SplitName, names: Hashes, states: Hashes) -> RowChange:
    """Compare the rows of an earlier version with those that are wanted now.

    Args:
        base: The earlier version.
        split: Of the rows.
        names: (n,) of the wanted rows; one may stand there several times.
        states: (n,) likewise.
    """
    manifest = base.manifests.get(split)
    shards = () if manifest is None else manifest.shards
    records = base.records.get(split, ())
    rows = [kept_rows(shard.excluded, shard.n_rows) for shard in shards]
    held = list(zip(records, rows, strict=True))
    held_names = np.concatenate([np.empty(0, np.uint64), *(one.names[kept] for one, kept in held)])
    held_states = np.concatenate([np.empty(0, np.uint64), *(one.states[kept] for one, kept in held)])
    times = np.concatenate([np.empty(0, np.int32), *(one.repeats[kept] for one, kept in held)])
    _, places, held_places = np.intersect1d(
        numbered(combined(names, states), np.zeros(len(names), np.int32)),
        numbered(combined(held_names, held_states), times),
        return_indices=True,
    )
    is_kept = np.zeros(len(names), bool)
    is_kept[places] = True
    place_of = np.full(len(held_names), -1, np.int64)
    place_of[held_places] = places
    n_kept = len(places)
    n_changed = len(np.intersect1d(names[~is_kept], held_names[place_of < 0]))
    of_shard = np.split(place_of, np.cumsum([len(kept) for kept in rows])[:-1]) if rows else []
    stays = shards_that_stay(shards, [int((one >= 0).sum()) for one in of_shard], len(names) - n_kept, base.version)
    carried, in_carried = [], [np.empty(0, np.int64)]
    for number in sorted(stays):
        shard, found = shards[number], of_shard[number]
        gone = np.setdiff1d(np.arange(shard.n_rows), rows[number][found >= 0])
        update = {"excluded": as_ranges(gone.tolist()), "n_samples": int((found >= 0).sum())}
        carried.append(shard.model_copy(update=update))
        in_carried.append(found[found >= 0])
    stay = np.concatenate(in_carried)
    return RowChange(
        n_kept=n_kept,
        n_new=len(names) - n_kept - n_changed,
        n_changed=n_changed,
        n_removed=len(held_names) - n_kept - n_changed,
        carried=tuple(carried),
        places=stay,
        added=np.setdiff1d(np.arange(len(names)), stay),
    )


def numbered(hashes: Hashes, order: npt.NDArray[np.integer[Any]]) -> Hashes:
    """Return (n,) hashes that no two have in common: equal ones are numbered, the lowest ``order`` first.

    Example:
        >>> found = numbered(np.array([7, 5, 7], np.uint64), np.array([1, 0, 0]))
        >>> bool((found == numbered(np.array([7, 7, 5], np.uint64), np.array([4, 3, 3]))[[0, 2, 1]]).all())
        True
    """
    ascending = np.lexsort((order, hashes))
    is_new = np.append(True, hashes[ascending][1:] != hashes[ascending][:-1])[: len(hashes)]
    at = np.arange(len(hashes))
    number = np.empty(len(hashes), np.uint64)
    number[ascending] = at - np.maximum.accumulate(np.where(is_new, at, 0))
    return mixed(hashes ^ mixed(number, 1))
