"""Records with the content of an earlier one, found before anything is written, so that they can be left out."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
import numpy.typing as npt

from deepspark_ops.ingest.findings import Finding, Findings
from deepspark_ops.ingest.images.sample_notes import record_digest
from deepspark_ops.ingest.records import Positions, RecordError, RecordReader, SourceIndex
from deepspark_ops.shards.manifest import SPLITS, SplitName

_THREADS: Final = 4
_RECORDS_OF_A_THREAD: Final = 2_000


def content_digests(reader: RecordReader, positions: Positions) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """Return ``record_digest`` of each record, (n,), and which could be read, (n,); nothing is decoded."""
    pieces = [positions[at : at + _RECORDS_OF_A_THREAD] for at in range(0, len(positions), _RECORDS_OF_A_THREAD)]
    with ThreadPoolExecutor(_THREADS) as pool:
        parts = list(pool.map(lambda piece: _digests_of(reader, piece), pieces))
    if not parts:
        return np.empty(0, np.uint64), np.empty(0, bool)
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _digests_of(reader: RecordReader, positions: Positions) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    digests, can_be_read = np.zeros(len(positions), np.uint64), np.ones(len(positions), bool)
    with reader.subset(positions).opened() as read:
        for i in range(len(positions)):
            try:
                digests[i] = record_digest(read(i))
            except RecordError:
                can_be_read[i] = False
    return digests, can_be_read


def without_duplicates(
    indexes: Mapping[SplitName, SourceIndex], positions: Mapping[SplitName, Positions], *, across: bool
) -> tuple[dict[SplitName, Positions], dict[SplitName, Findings]]:
    """Return the positions without the records that have the content of an earlier one of the same split.

    Args:
        indexes: Split -> its source's index.
        positions: Split -> positions in that source; the first of equal records is the one with the lowest.
        across: Also leave out validation records with the content of a training record, and test records with that of
            either.

    Returns:
        The positions that stay, and the records left out, each named; a record that cannot be read stays.
    """
    kept: dict[SplitName, Positions] = {}
    findings = {split: Findings() for split in positions}
    seen: dict[int, tuple[SplitName, str]] = {}
    for split in [split for split in SPLITS if split in positions]:
        ordered = np.sort(positions[split])
        digests, can_be_read = content_digests(indexes[split].reader, ordered)
        seen = seen if across else {}
        stays = np.ones(len(ordered), bool)
        names = indexes[split].names
        for i in np.flatnonzero(can_be_read).tolist():
            place = int(ordered[i])
            digest = int(digests[i])
            if digest in seen:
                stays[i] = False
                text = f"has the content of {seen[digest][0]} record {seen[digest][1]}"
                findings[split].add(Finding("duplicate_left_out", names[place], text, place))
            else:
                seen[digest] = (split, names[place])
        kept[split] = ordered[stays]
    return kept, findings
