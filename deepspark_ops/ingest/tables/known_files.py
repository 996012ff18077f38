"""Files of a table that a new version of a dataset does not read again, since their stamps are the same.

Tasks read some formats by themselves. A dataset of such files has a file beside the training set's shards: the number
of each row's file, and the summary of each file. The next ingestion reads changed and new files only. Format version 1:
an archive of ``record_archive``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
import numpy.typing as npt

from caffe_import.file_access.regular_file import regular_path
from deepspark_ops.config.ingest import FileStamp, IngestConfig
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.files.image_files import file_stamp
from deepspark_ops.ingest.selection.splits import digest_of_split_list
from deepspark_ops.ingest.tables.column_sums import ColumnSums
from deepspark_ops.ingest.tables.row_files import PartSummary, RowKeys, shown_id
from deepspark_ops.ingest.versions.base import Base
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.excluded_rows import kept_rows
from deepspark_ops.shards.files.record_archive import opened_archive, write_archive
from deepspark_ops.shards.files.row_records import RowRecords
from deepspark_ops.shards.manifest import SPLITS, SplitName, sha256_of_file, shard_folder
from deepspark_ops.stores.staging import local_copy
from deepspark_ops.stores.store_path import DataPath, name_below

_log = logging.getLogger(__name__)
FILES_VERSION: Final = 1
_ROW_ARRAYS: Final = ("files", "contents", "labels")
_SUMS: Final = tuple(item.name for item in fields(ColumnSums))


@dataclass(frozen=True)
class SeenSource:
    """The files of one source.

    Attributes:
        names: Name of each file below the source; "" for a source that is a file.
        stamps: ``file_stamp`` of each.
        parts: Summaries of the files' parts, in the files' order; without runs.
    """

    names: tuple[str, ...]
    stamps: tuple[str, ...]
    parts: tuple[PartSummary, ...]


@dataclass(frozen=True)
class SeenRows:
    """The rows of a split that count, in the manifest's order, (n,) each.

    Attributes:
        files: Number of each row's file in its source.
        contents: Hash of the features.
        labels: The first one, as it is stored.
    """

    files: npt.NDArray[np.int32]
    contents: npt.NDArray[np.uint64]
    labels: npt.NDArray[np.float64]


@dataclass(frozen=True)
class SeenFiles:
    """The records of a table's files that a dataset keeps.

    Attributes:
        sources: Split -> files of its source, for splits with a source.
        rows: Split -> rows.
    """

    sources: Mapping[SplitName, SeenSource]
    rows: Mapping[SplitName, SeenRows]


def look_at_files(source: DataPath, files: Sequence[DataPath], stamp: FileStamp = "time") -> SeenSource:
    """Return the files of a source as they are now."""
    names = tuple(name_below(source, file) for file in files)
    return SeenSource(names, tuple(file_stamp(file, stamp).decode() for file in files), ())


def write_seen_files(path: Path, seen_files: SeenFiles) -> None:
    """Write the records whole.

    Raises:
        OSError: The file cannot be written.
    """
    arrays: dict[str, Any] = {}
    described = {}
    for split, source in seen_files.sources.items():
        parts = [json.loads(replace(part, runs=[]).to_json()) for part in source.parts]
        for name in _SUMS:
            arrays[f"{split}.{name}"] = np.array([part["sums"][name] for part in parts], np.float64)
        described[split] = {
            "names": [name.encode("utf-8", "surrogateescape").hex() for name in source.names],
            "stamps": source.stamps,
            "parts": [{name: value for name, value in part.items() if name != "sums"} for part in parts],
        }
    for split, rows in seen_files.rows.items():
        arrays |= {f"{split}.{name}": getattr(rows, name) for name in _ROW_ARRAYS}
    arrays["told"] = np.frombuffer(json.dumps(described).encode(), np.uint8)
    write_archive(path, FILES_VERSION, arrays)


def read_seen_files(path: DataPath) -> SeenFiles:
    """Return what ``write_seen_files`` wrote.

    Raises:
        DataError: There is no such file, or it is damaged or of another version.
    """
    with opened_archive(path, FILES_VERSION) as held:
        sources: dict[SplitName, SeenSource] = {}
        for split, of_source in json.loads(held["told"].tobytes()).items():
            sums = {name: held[f"{split}.{name}"] for name in _SUMS}
            parts = [
                PartSummary.from_json(json.dumps({**part, "sums": {name: sums[name][i].tolist() for name in _SUMS}}))
                for i, part in enumerate(of_source["parts"])
            ]
            names = tuple(bytes.fromhex(name).decode("utf-8", "surrogateescape") for name in of_source["names"])
            sources[split] = SeenSource(names, tuple(of_source["stamps"]), tuple(parts))
        rows = {
            split: SeenRows(*(held[f"{split}.{name}"] for name in _ROW_ARRAYS))
            for split in SPLITS
            if f"{split}.files" in held
        }
        return SeenFiles(sources, rows)


@dataclass(frozen=True)
class StoredRun:
    """Rows of a shard whose files have not changed, in place of rows of these files.

    Attributes:
        shard: The file.
        rows: (n,) numbers of rows in the shard, ascending.
        files: (n,) the number of each row's file now.
        keys: Keys of the rows; ``key`` is 0, since these rows are never written.
    """

    shard: DataPath
    rows: npt.NDArray[np.int64]
    files: npt.NDArray[np.int32]
    keys: RowKeys

    def describe(self, row: int) -> tuple[str, list[float]]:
        """Return the name of a row for a message, and the row's labels."""
        number = int(self.rows[row])
        with local_copy(self.shard) as local, h5py.File(regular_path(local)) as held:
            shown = shown_id(held["id"][number]) if "id" in held else f"row {number} of {self.shard.name}"
            return shown, np.atleast_1d(held["label"][number]).tolist()


@dataclass(frozen=True)
class KnownFiles:
    """The files of a table, and the files among them that need no reading.

    Attributes:
        now: The files of each source.
        old_numbers: Source -> (n,) number of each of its files in the base; -1 for a file that must be read.
        base: Dataset whose rows replace the rows of files that are not read.
        seen: Records of that dataset.
    """

    now: Mapping[SplitName, SeenSource]
    old_numbers: Mapping[SplitName, npt.NDArray[np.int64]]
    base: Base[RowRecords]
    seen: SeenFiles

    def to_read(self, source: SplitName) -> set[int]:
        """Return the numbers of the files of a source that are read."""
        return set(np.flatnonzero(self.old_numbers[source] < 0).tolist())

    def without(self, files: Mapping[SplitName, Collection[int]]) -> KnownFiles | None:
        """Return the files with further files to read; None if all files must be read."""
        old_numbers = {source: numbers.copy() for source, numbers in self.old_numbers.items()}
        for source, more in files.items():
            old_numbers[source][list(more)] = -1
        is_left = any((numbers >= 0).any() for numbers in old_numbers.values())
        return replace(self, old_numbers=old_numbers) if is_left else None

    def parts(self, source: SplitName) -> list[PartSummary]:
        """Return the summaries of those files of a source that are not read."""
        now = {int(number): place for place, number in enumerate(self.old_numbers[source]) if number >= 0}
        return [replace(part, file=now[part.file]) for part in self.seen.sources[source].parts if part.file in now]

    def source_of(self, split: SplitName) -> SplitName:
        """Return the split whose source has the rows of a split."""
        return split if split in self.now else "train"

    def stored(self, split: SplitName) -> list[StoredRun]:
        """Return the rows of a split that are not read."""
        manifest, seen_rows = self.base.manifests.get(split), self.seen.rows.get(split)
        if manifest is None or seen_rows is None:
            return []
        source = self.source_of(split)
        place_of = np.full(len(self.seen.sources[source].names), -1, np.int32)
        is_known = self.old_numbers[source] >= 0
        place_of[self.old_numbers[source][is_known]] = np.flatnonzero(is_known)
        folder = shard_folder(DatasetPaths(self.base.folder).split(split))
        runs, first = [], 0
        for shard, records in zip(manifest.shards, self.base.records[split], strict=True):
            counted_rows = kept_rows(shard.excluded, shard.n_rows)
            of_shard = slice(first, first + len(counted_rows))
            first += len(counted_rows)
            files = place_of[seen_rows.files[of_shard]]
            unchanged = np.flatnonzero(files >= 0)
            rows = counted_rows[unchanged]
            keys = RowKeys(
                key=np.zeros(len(rows), np.uint64),
                content=seen_rows.contents[of_shard][unchanged],
                name=records.names[rows],
                state=records.states[rows],
                label=seen_rows.labels[of_shard][unchanged],
            )
            runs.append(StoredRun(folder / shard.file, rows, files[unchanged], keys))
        return runs


def find_known_files(
    config: IngestConfig, base: Base[RowRecords] | None, now: Mapping[SplitName, SeenSource] | None
) -> KnownFiles | None:
    """Return which files need no reading; None where all rows are read, and the log says why.

    ``now`` has the files of each source; None where Spark reads them.
    """
    if base is None:
        return None
    try:
        known_files = _why_all(config, base, now)
    except DataError as error:
        known_files = str(error)
    if isinstance(known_files, str):
        _log.info("ingest: every row is read and compared: %s", known_files)
        return None
    return known_files


def _why_all(
    config: IngestConfig, base: Base[RowRecords], now: Mapping[SplitName, SeenSource] | None
) -> KnownFiles | str:
    """Return the files, or why all must be read."""
    train = base.manifests["train"]
    if now is None:
        return "what a query, a table of the catalog, CSV, JSON, ORC or folders like day=3 give is known by reading it"
    chosen = [name for name in ("limit", "balance", "deduplicate") if name in train.options]
    if chosen:
        return f"{', '.join(chosen)} chooses among all of them"
    if train.source_files is None:
        return "the version before kept nothing of its files"
    if config.split_list is not None and (
        train.split_rule is None or train.split_rule.named != digest_of_split_list(config.split_list)
    ):
        return "the list of the splits has changed"
    path = DatasetPaths(base.folder).split("train") / train.source_files.file
    with local_copy(path) as local:
        if sha256_of_file(local) != train.source_files.sha256:
            msg = f"{path}: the digest is not that in the manifest"
            raise DataError(msg)
    seen_files = read_seen_files(path)
    if set(seen_files.sources) != set(now):
        return "the splits have other sources"
    old_numbers: dict[SplitName, npt.NDArray[np.int64]] = {}
    for source, files in now.items():
        held = seen_files.sources[source]
        number_of = {pair: number for number, pair in enumerate(zip(held.names, held.stamps, strict=True))}
        pairs = zip(files.names, files.stamps, strict=True)
        old_numbers[source] = np.array([number_of.get(pair, -1) for pair in pairs], np.int64)
    if not any((numbers >= 0).any() for numbers in old_numbers.values()):
        return "every file has changed"
    n_files = sum(len(numbers) for numbers in old_numbers.values())
    n_read = sum(int((numbers < 0).sum()) for numbers in old_numbers.values())
    _log.info("ingest: %s of %s files are read; the others have not changed", f"{n_read:,}", f"{n_files:,}")
    return KnownFiles(now, old_numbers, base, seen_files)
