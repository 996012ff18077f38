"""The changes of a source since a dataset was made: samples that stay or go, and new records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic

import numpy as np
import numpy.typing as npt

from deepspark_ops.ingest.records import Positions, SourceIndex
from deepspark_ops.ingest.selection.image_records import content_digests
from deepspark_ops.ingest.selection.row_hash import Hashes, combined, name_hashes, numbered
from deepspark_ops.ingest.versions.stored_shard import Records, StoredShard
from deepspark_ops.shards.excluded_rows import as_ranges
from deepspark_ops.shards.files.row_records import RowRecords
from deepspark_ops.shards.files.shard_records import ShardRecords
from deepspark_ops.shards.manifest import ShardRecord

_WORTH_KEEPING: Final = 0.5
"""A shard with a smaller share of rows that count is written anew, which bounds disk space and reading time."""


@dataclass(frozen=True)
class Change(Generic[Records]):
    """The difference between a split and its earlier version.

    Attributes:
        n_kept: Samples that stay.
        n_new: Records that were not there.
        n_changed: Records whose content or label is another one.
        n_removed: Samples whose records are gone.
        carried: Shards that stay, with the rows that do not count any more.
        added: Numbers of the wanted records that are to be written, ascending.
    """

    n_kept: int
    n_new: int
    n_changed: int
    n_removed: int
    carried: tuple[StoredShard[Records], ...]
    added: Positions

    def text(self) -> str:
        """Return the counts in words."""
        return (
            f"{self.n_kept:,} samples stay, {self.n_new:,} are new, {self.n_changed:,} changed, {self.n_removed:,} gone"
        )


def find_changes(
    shards: Sequence[StoredShard[Records]],
    keys: Sequence[RowRecords],
    names: Hashes,
    states: Hashes,
    version: int,
    is_same: Callable[[Positions, Positions], npt.NDArray[np.bool_]] | None = None,
) -> Change[Records]:
    """Compare the samples of an earlier version with the records that are wanted now.

    Args:
        shards: Of the earlier version of the split; their ``positions`` are not looked at.
        keys: Names and states of the rows of each shard.
        names: (n,) of the wanted records; one may stand there several times.
        states: (n,) likewise.
        version: Of the new dataset; shards that came after the first version may be written anew to keep them few.
        is_same: Says of pairs of equal name and state, (m,) wanted records and (m,) samples that count, which have the
            same content; None: all.
    """
    rows = [shard.rows for shard in shards]
    held = RowRecords(*(joined_keys(keys, rows, name) for name in ("names", "states", "repeats")))
    _, matched_records, samples = np.intersect1d(
        numbered(combined(names, states), np.zeros(len(names), np.int32)),
        numbered(combined(held.names, held.states), held.repeats),
        return_indices=True,
    )
    if is_same is not None:
        order = np.argsort(matched_records)
        matched_records, samples = matched_records[order], samples[order]
        same = is_same(matched_records, samples)
        matched_records, samples = matched_records[same], samples[same]
    is_kept = np.zeros(len(names), bool)
    is_kept[matched_records] = True
    record_of = np.full(len(held.names), -1, np.int64)
    record_of[samples] = matched_records
    n_kept = len(matched_records)
    n_changed = len(np.intersect1d(names[~is_kept], held.names[record_of < 0]))
    of_shard = np.split(record_of, np.cumsum([len(shard_rows) for shard_rows in rows])[:-1]) if rows else []
    sizes = [int((records >= 0).sum()) for records in of_shard]
    stays = shards_that_stay([shard.record for shard in shards], sizes, len(names) - n_kept, version)
    carried = tuple(_carried(shards[number], of_shard[number]) for number in sorted(stays))
    return Change(
        n_kept=n_kept,
        n_new=len(names) - n_kept - n_changed,
        n_changed=n_changed,
        n_removed=len(held.names) - n_kept - n_changed,
        carried=carried,
        added=np.setdiff1d(np.arange(len(names)), positions_of(carried)),
    )


def positions_of(shards: Sequence[StoredShard[Any]]) -> Positions:
    """Return the positions of the samples that count, shard by shard, in the order of the samples."""
    return np.concatenate([np.empty(0, np.int64), *(shard.positions[shard.rows] for shard in shards)])


def joined_keys(keys: Sequence[Any], rows: Sequence[Positions], name: str) -> npt.NDArray[Any]:
    """Return an array of the records of shards, of the rows that count, one shard after the other."""
    dtype = np.int32 if name == "repeats" else np.uint64
    return np.concatenate(
        [
            np.empty(0, dtype),
            *(getattr(shard_keys, name)[shard_rows] for shard_keys, shard_rows in zip(keys, rows, strict=True)),
        ]
    )


def _carried(shard: StoredShard[Records], record_of: Positions) -> StoredShard[Records]:
    """Return a shard that stays; ``record_of`` are the wanted records of the rows that counted, -1 for none."""
    positions = np.full(shard.record.n_rows, -1, np.int64)
    positions[shard.rows] = record_of
    excluded = as_ranges(np.flatnonzero(positions < 0).tolist())
    record = shard.record.model_copy(update={"excluded": excluded, "n_samples": int((positions >= 0).sum())})
    return replace(shard, record=record, positions=positions)


def shards_that_stay(records: Sequence[ShardRecord], sizes: Sequence[int], n_added: int, version: int) -> set[int]:
    """Return the numbers of the shards that stay; ``sizes``: how many samples of each still count.

    The new shard takes in small shards of earlier additions, the smallest first, that are no larger than the new shard,
    which has ``n_added`` samples in any case. The number of shards grows about as the logarithm of the number of
    additions.
    """
    stays: set[int] = set()
    for number in sorted(range(len(records)), key=lambda number: sizes[number]):
        record = records[number]
        is_worth_it = sizes[number] > 0 and sizes[number] >= _WORTH_KEEPING * record.n_rows
        if is_worth_it and not (1 < record.version < version and sizes[number] <= n_added):
            stays.add(number)
        else:
            n_added += sizes[number]
    return stays


def find_image_changes(
    shards: Sequence[StoredShard[ShardRecords]],
    index: SourceIndex,
    positions: Positions,
    stamps: npt.NDArray[np.uint64] | None,
    version: int,
) -> Change[ShardRecords]:
    """Compare the images of an earlier version with those that are wanted now, as ``find_changes`` does.

    An image is the same if name and label are, and either its stamp or the checksum of its content: only records whose
    stamp says nothing are read.

    Args:
        shards: As for ``find_changes``.
        index: Of the source.
        positions: Wanted records, ascending; one may stand there several times.
        stamps: Of all records of the source; None where they show no change.
        version: As for ``find_changes``.

    Returns:
        The change; the positions in its shards are those in the source.
    """
    rows = [shard.rows for shard in shards]
    records = [shard.records for shard in shards]

    def is_same(matched_records: Positions, samples: Positions) -> npt.NDArray[np.bool_]:
        read = positions[matched_records]
        now = np.zeros(len(read), np.uint64) if stamps is None else stamps[read]
        same: npt.NDArray[np.bool_] = (now == joined_keys(records, rows, "stamps")[samples]) & (now != 0)
        doubtful = np.flatnonzero(~same)
        digests, can_be_read = content_digests(index.reader, read[doubtful])
        same[doubtful] = can_be_read & (digests == joined_keys(records, rows, "digests")[samples][doubtful])
        return same

    keys = [RowRecords(_hashed(held.names), held.labels.astype(np.uint64), held.repeats) for held in records]
    names = _hashed([index.names[i] for i in positions.tolist()])
    change = find_changes(shards, keys, names, index.labels[positions].astype(np.uint64), version, is_same)
    carried = tuple(
        replace(shard, positions=np.where(shard.positions < 0, -1, positions[shard.positions]))
        for shard in change.carried
    )
    return replace(change, carried=carried)


def _hashed(names: Sequence[str]) -> Hashes:
    return name_hashes(names, salt=b"name")
