"""Records with the content of an earlier one, images or rows: named and counted, or left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from deepspark_ops.ingest.findings import NAMED_OF_A_KIND, Finding, Findings
from deepspark_ops.ingest.records import Positions
from deepspark_ops.ingest.selection.records_of_split import About, Comparable, RecordsOfSplit
from deepspark_ops.ingest.selection.row_hash import Hashes
from deepspark_ops.shards.manifest import SplitName


def find_duplicates(splits: Mapping[SplitName, Comparable], looked_up: int | None = None) -> dict[SplitName, Findings]:
    """Return the records whose content an earlier one has; training records go first.

    A record with another label than the earlier one is counted as such, among the first ``looked_up``; None: all.
    ``splits`` are in the order of ``SPLITS``, each record once.
    """
    findings = {split: Findings() for split in splits}
    joined = _Joined(splits)
    duplicates, first = joined.equal(across=True)
    for position, earlier in zip(duplicates[:looked_up].tolist(), first[:looked_up].tolist(), strict=True):
        (split, record), (of_split, of) = joined.about(position), joined.about(earlier)
        same = "duplicate" if record.label == of.label else "duplicate_other_label"
        kind = same if split == of_split else f"duplicate_in_{split}"
        findings[split].add(Finding(kind, record.name, splits[split].same_text(of_split, of, record), record.position))
    uncounted = slice(len(duplicates) if looked_up is None else looked_up, None)
    sides, first_sides = joined.sides(duplicates[uncounted]), joined.sides(first[uncounted])
    for number, split in enumerate(splits):
        is_here = sides == number
        is_within = is_here & (first_sides == number)
        counts = {"duplicate": is_within.sum(), f"duplicate_in_{split}": (is_here & ~is_within).sum()}
        findings[split].counts.update({kind: int(count) for kind, count in counts.items() if count})
    return findings


def without_duplicates(
    splits: Mapping[SplitName, RecordsOfSplit], *, across: bool
) -> tuple[dict[SplitName, RecordsOfSplit], dict[SplitName, Findings]]:
    """Return the records of each split whose content no earlier one has.

    Args:
        splits: In the order of ``SPLITS``.
        across: Also leave out validation records with the content of a training record, and test records with that of
            either.

    Returns:
        The records that stay, and those left out, of which the first thousand of a split are named. A record that
        cannot be read stays.
    """
    remaining: dict[SplitName, RecordsOfSplit] = {}
    findings = {split: Findings() for split in splits}
    joined = _Joined(splits)
    duplicates, first = joined.equal([records.ties() for records in splits.values()], across=across)
    order = np.argsort(duplicates)
    duplicates, first = duplicates[order], first[order]
    for number, (split, records) in enumerate(splits.items()):
        is_here = joined.sides(duplicates) == number
        out = duplicates[is_here] - joined.starts[number]
        for position, earlier in zip(out[:NAMED_OF_A_KIND].tolist(), first[is_here].tolist(), strict=False):
            record, (of_split, of) = records.about(position), joined.about(earlier)
            text = records.same_text(of_split, of, record)
            findings[split].add(Finding("duplicate_left_out", record.name, text, record.position))
        if len(out):
            findings[split].counts["duplicate_left_out"] = len(out)
        remaining[split] = records.selected(np.setdiff1d(np.arange(len(records)), out))
    return remaining, findings


class _Joined:
    """The records of all splits, one split after the other."""

    def __init__(self, splits: Mapping[SplitName, Comparable]) -> None:
        self._names = list(splits)
        self._splits = list(splits.values())
        self.starts = np.cumsum([0, *(len(records) for records in self._splits)])

    def sides(self, positions: Positions) -> Positions:
        """Return the (n,) numbers of the splits that places are in."""
        return np.searchsorted(self.starts, positions, "right") - 1

    def about(self, position: int) -> tuple[SplitName, About]:
        """Return split and description of a record."""
        number = int(self.sides(np.array([position]))[0])
        return self._names[number], self._splits[number].about(position - int(self.starts[number]))

    def equal(self, ties: Sequence[tuple[Hashes, ...]] = (), *, across: bool) -> tuple[Positions, Positions]:
        """Return the places of records whose content an earlier one has, by content, and of each the earlier one.

        Args:
            ties: Of each split, keys by which equal records are ordered.
            across: Compare records of different splits, too.
        """
        parts = [records.contents() for records in self._splits]
        contents = np.concatenate([np.empty(0, np.uint64), *(part[0] for part in parts)])
        readable = np.flatnonzero(np.concatenate([np.empty(0, bool), *(part[1] for part in parts)]))
        sides = self.sides(np.arange(len(contents)))
        keys = [np.concatenate(key)[readable] for key in zip(*ties, strict=True)]
        order = readable[np.lexsort((*keys[::-1], sides[readable], contents[readable]))]
        is_new = np.ones(len(order), bool)
        is_new[1:] = contents[order][1:] != contents[order][:-1]
        if not across:
            is_new[1:] |= sides[order][1:] != sides[order][:-1]
        first = order[np.maximum.accumulate(np.where(is_new, np.arange(len(order)), 0))]
        return order[~is_new], first[~is_new]
