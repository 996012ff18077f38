"""What has changed between a dataset and its source: which samples stay, which go, which records come."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from deepspark_ops.ingest.records import Positions, SourceIndex
from deepspark_ops.ingest.selection.duplicates import content_digests
from deepspark_ops.ingest.selection.sampling import repeats
from deepspark_ops.ingest.versions.base import no_positions
from deepspark_ops.ingest.versions.stored_shard import StoredShard
from deepspark_ops.shards.excluded_rows import as_ranges, kept_rows
from deepspark_ops.shards.manifest import ShardRecord

_WORTH_KEEPING: Final = 0.5
"""A shard of which fewer rows count is written anew, so that disk and reading never cost twice what they could."""


@dataclass(frozen=True)
class ChangeCounts:
    """How much of a split has changed.

    Attributes:
        n_kept: Samples that stay.
        n_new: Records that were not there.
        n_changed: Records whose content or label is another one.
        n_removed: Samples whose records are gone.
    """

    n_kept: int
    n_new: int
    n_changed: int
    n_removed: int

    def text(self) -> str:
        """Return it in words."""
        return (
            f"{self.n_kept:,} samples stay, {self.n_new:,} are new, {self.n_changed:,} changed, {self.n_removed:,} gone"
        )


@dataclass(frozen=True)
class Change(ChangeCounts):
    """How a split is made of an earlier one.

    Attributes:
        carried: Shards that stay, with the rows that do not count any more.
        added: Positions of the records to be written, ascending.
        repeats: (n_added,) how often each was taken before.
    """

    carried: tuple[StoredShard, ...]
    added: Positions
    repeats: npt.NDArray[np.int32]


def find_changes(
    shards: Sequence[StoredShard],
    index: SourceIndex,
    positions: Positions,
    stamps: npt.NDArray[np.uint64] | None,
    version: int,
) -> Change:
    """Compare the samples of an earlier version with the records that are wanted now.

    A record is the same if name and label are, and either its stamp or the checksum of its content: only records whose
    stamp says nothing are read.

    Args:
        shards: Of the earlier version of the split; their ``positions`` are not looked at.
        index: Of the source.
        positions: Wanted records; one may stand there several times.
        stamps: Of all records of the source; None where they show no change.
        version: Of the new dataset; shards that came after the first version may be written anew to keep them few.
    """
    wanted = np.sort(positions)
    taken_before = repeats(wanted)
    pairs = _pairs(shards, index, wanted)
    is_same = _compare(shards, index, wanted, pairs, stamps)
    found = [no_positions(shard.record.n_rows) for shard in shards]
    is_added = np.ones(len(wanted), bool)
    for (place, number, row), same in zip(pairs, is_same, strict=True):
        if same:
            found[number][row] = wanted[place]
            is_added[place] = False
    n_rows = sum(len(shard.rows) for shard in shards)
    n_kept = int((~is_added).sum())
    n_changed = len({index.names[i] for i in wanted[is_added].tolist()} & _names_gone(shards, found))
    place_of = {(number, row): place for place, number, row in pairs}
    carried = []
    sizes = [int((positions >= 0).sum()) for positions in found]
    stays = shards_that_stay([shard.record for shard in shards], sizes, int(is_added.sum()), version)
    for number, shard in enumerate(shards):
        if number in stays:
            excluded = as_ranges(np.flatnonzero(found[number] < 0).tolist())
            n_samples = int((found[number] >= 0).sum())
            record = shard.record.model_copy(update={"excluded": excluded, "n_samples": n_samples})
            carried.append(StoredShard(record, shard.records, found[number], shard.folder, shard.shard_format))
        else:
            for row in np.flatnonzero(found[number] >= 0).tolist():
                is_added[place_of[number, row]] = True
    n_new = len(wanted) - n_kept - n_changed
    return Change(
        carried=tuple(carried),
        added=wanted[is_added],
        repeats=taken_before[is_added],
        n_kept=n_kept,
        n_new=n_new,
        n_changed=n_changed,
        n_removed=n_rows - n_kept - n_changed,
    )


def shards_that_stay(records: Sequence[ShardRecord], sizes: Sequence[int], n_added: int, version: int) -> set[int]:
    """Return the numbers of the shards that stay.

    Small ones of earlier additions go into the new one, the smallest first, as long as they are no larger than it:
    their number stays about the logarithm of the number of additions.

    Args:
        records: The shards.
        sizes: How many samples of each still count.
        n_added: Samples to be written in any case.
        version: Of the new dataset.
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


def _pairs(shards: Sequence[StoredShard], index: SourceIndex, wanted: Positions) -> list[tuple[int, int, int]]:
    """Return (place in ``wanted``, shard, row) of records and samples of one name and label."""
    there: dict[tuple[str, int], list[tuple[int, int, int]]] = defaultdict(list)
    for number, shard in enumerate(shards):
        labels, times = shard.records.labels.tolist(), shard.records.repeats.tolist()
        for row in kept_rows(shard.record.excluded, shard.record.n_rows).tolist():
            there[shard.records.names[row], labels[row]].append((times[row], number, row))
    for candidates in there.values():
        candidates.sort(reverse=True)  # taken from the end: the first copies stay
    pairs = []
    labels = index.labels
    for place, position in enumerate(wanted.tolist()):
        candidates = there.get((index.names[position], int(labels[position])), [])
        if candidates:
            _, number, row = candidates.pop()
            pairs.append((place, number, row))
    return pairs


def _compare(
    shards: Sequence[StoredShard],
    index: SourceIndex,
    wanted: Positions,
    pairs: Sequence[tuple[int, int, int]],
    stamps: npt.NDArray[np.uint64] | None,
) -> npt.NDArray[np.bool_]:
    """Return which pairs have one content, (n_pairs,)."""
    if not pairs:
        return np.empty(0, bool)
    held = np.array([shards[shard].records.stamps[row] for _, shard, row in pairs], np.uint64)
    digests = np.array([shards[shard].records.digests[row] for _, shard, row in pairs], np.uint64)
    positions = wanted[[place for place, _, _ in pairs]]
    now = np.zeros(len(pairs), np.uint64) if stamps is None else stamps[positions]
    same: npt.NDArray[np.bool_] = (now == held) & (now != 0)
    doubtful = np.flatnonzero(~same)
    found, can_be_read = content_digests(index.reader, positions[doubtful])
    same[doubtful] = can_be_read & (found == digests[doubtful])
    return same


def _names_gone(shards: Sequence[StoredShard], found: Sequence[Positions]) -> set[str]:
    return {
        shard.records.names[row]
        for shard, positions in zip(shards, found, strict=True)
        for row in shard.rows[positions[shard.rows] < 0].tolist()
    }
