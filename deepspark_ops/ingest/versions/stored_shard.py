"""A shard that a dataset names, with what is known of its samples or rows, whoever wrote it."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from deepspark_ops.ingest.findings import Finding, Findings
from deepspark_ops.ingest.images.mean import Sums
from deepspark_ops.ingest.records import Positions
from deepspark_ops.ingest.selection.records_of_split import About
from deepspark_ops.ingest.selection.row_hash import Hashes
from deepspark_ops.run_paths import sync_folder
from deepspark_ops.shards.excluded_rows import kept_rows
from deepspark_ops.shards.files.shard_records import ShardRecords
from deepspark_ops.shards.manifest import ShardFormat, ShardRecord
from deepspark_ops.shards.reader import read_rows
from deepspark_ops.stores.store_path import DataPath

_ROWS_READ: Final = 256
Records = TypeVar("Records")
"""``ShardRecords`` of images, ``RowRecords`` of a table."""


@dataclass(frozen=True)
class StoredShard(Generic[Records]):
    """One shard.

    Attributes:
        record: As the manifest names it.
        records: Of all its rows, those that do not count included.
        positions: (n_rows,) of each row's record in its source, or among a table's rows that are wanted; -1 for a row
            that does not count.
        folder: Where its files are.
        shard_format: Of the file.
    """

    record: ShardRecord
    records: Records
    positions: Positions
    folder: DataPath
    shard_format: ShardFormat

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """Rows that count, ascending."""
        return kept_rows(self.record.excluded, self.record.n_rows)

    def sums(self: StoredShard[ShardRecords]) -> Sums:
        """Return the sum of the pixels of all samples that count.

        Raises:
            DataError: The shard is damaged.
        """
        total: Any = self.records.sums
        for start, stop in self.record.excluded:
            for first in range(start, stop, _ROWS_READ):
                images = read_rows(
                    self.folder / self.record.file, self.shard_format, first, min(stop, first + _ROWS_READ)
                )
                total = total - images.astype(total.dtype).sum(axis=0)
        return np.asarray(total)

    def findings(self: StoredShard[ShardRecords]) -> Findings:
        """Return what there is to say of the samples that count."""
        counts = set(self.rows.tolist())
        gone = Counter(kind for kind, row, _ in self.records.findings if row not in counts)
        named = [
            Finding(kind, self.records.names[row], text, int(self.positions[row]))
            for kind, row, text in self.records.findings
            if row in counts
        ]
        remaining = {kind: count - gone[kind] for kind, count in self.records.counts.items()}
        return Findings(Counter({kind: count for kind, count in remaining.items() if count > 0}), named)


@dataclass(frozen=True)
class StoredImages:
    """The images of a split's shards that were read from the source, see ``Comparable``: each once, in its order.

    Attributes:
        shards: Of the split.
    """

    shards: Sequence[StoredShard[ShardRecords]]

    @cached_property
    def _rows(self) -> tuple[Positions, Positions, Positions, Hashes]:
        """Shard, row, position and digest of each image."""
        rows = [np.flatnonzero((shard.positions >= 0) & (shard.records.repeats == 0)) for shard in self.shards]
        numbers = np.repeat(np.arange(len(rows)), [len(of_shard) for of_shard in rows])
        pairs = list(zip(self.shards, rows, strict=True))
        positions = np.concatenate([np.empty(0, np.int64), *(shard.positions[row] for shard, row in pairs)])
        digests = np.concatenate([np.empty(0, np.uint64), *(shard.records.digests[row] for shard, row in pairs)])
        order = np.argsort(positions, kind="stable")
        all_rows = np.concatenate([np.empty(0, np.int64), *rows])
        return numbers[order], all_rows[order], positions[order], digests[order]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._rows[0])

    def contents(self) -> tuple[Hashes, npt.NDArray[np.bool_]]:
        """See ``Comparable``."""
        return self._rows[3], np.ones(len(self), bool)

    def about(self, index: int) -> About:
        """See ``Comparable``."""
        shard, row, position = (int(numbers[index]) for numbers in self._rows[:3])
        records = self.shards[shard].records
        return About(records.names[row], int(records.labels[row]), position)

    def same_text(self, of_split: str, of: About, record: About) -> str:
        """See ``Comparable``."""
        return f"has the content of {of_split} record {of.name}, label {of.label}; its own label is {record.label}"


def link_files(folder: Path, names: Sequence[str], target: Path) -> None:
    """Link files of one folder into another folder by hard links: each folder can be removed alone.

    A file system without links gets copies. Existing files stay.
    """
    target.mkdir(parents=True, exist_ok=True)
    for name in names:
        path, other = folder / name, target / name
        if path.is_dir():
            link_files(path, sorted(file.name for file in path.iterdir() if file.suffix == ".mdb"), other)
        elif not other.exists():
            try:
                os.link(path, other)
            except OSError:
                shutil.copy2(path, other)
    sync_folder(target)


def files_of(record: ShardRecord) -> list[str]:
    """Return the names of a shard's files."""
    return [record.file, *(file_record.file for file_record in record.beside)]
