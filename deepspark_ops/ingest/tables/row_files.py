"""Rows on their way from Spark to shards: scratch files of sorted runs, so that a shard reads each row once.

A task sorts what fits its memory by the rows' keys and appends it, a run, to a file of its own. A shard is a range of
keys: one piece of every run. Features stand there as the table has them, since the mean of the training set is known
only when all rows were seen. The files are in this machine's byte order and go when the ingestion ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deepspark_ops.ingest.findings import NAMED_OF_A_KIND
from deepspark_ops.ingest.selection.splits import OUTSIDE
from deepspark_ops.ingest.tables.column_sums import ColumnSums
from deepspark_ops.ingest.tables.row_batch import ClassNames, Rejects, RowRecipe, Rows, read_rows
from deepspark_ops.shards.manifest import SPLITS, SplitName

RUN_BYTES = 2**24
"""Rows that a task holds before it sorts and writes them."""
CHOSEN = np.dtype([("row", np.int64), ("repeat", np.int32)])
"""A row of a run that is taken, and how often it was before."""
Spread = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
"""Does work for each item, maybe on many machines, and returns the results in the items' order."""
_KEYS = np.dtype([(name, np.uint64) for name in ("key", "content", "name", "state")] + [("label", np.float64)])


@dataclass(frozen=True)
class Run:
    """Sorted rows of one split in a file.

    Attributes:
        file: Name in the scratch folder.
        split: Of the rows.
        offset: Bytes of the file before them.
        n_rows: Of the run.
        first_key: Rows of the file before them, of all runs.
        id_bytes: Longest id; 0 for whole numbers.
        group_bytes: Longest group; 0 likewise.
        part: Number of the part of the table that the rows are of.
    """

    file: str
    split: SplitName
    offset: int
    n_rows: int
    first_key: int
    id_bytes: int
    group_bytes: int
    part: int


@dataclass
class PartSummary:
    """The summary of a part of a table, as a task read the part.

    Attributes:
        part: Number of the part.
        file: Number of the part's file in the source; -1 where Spark cut the table.
        n_rows: Rows read, those that cannot be used included.
        runs: Runs that the task wrote.
        sums: Sums of the features of training rows.
        digest: Sum of the hashes of all usable rows, modulo 2^64: the same in any order.
        smallest_label: Infinite without rows.
        largest_label: Likewise.
        are_whole: Whether all labels are whole numbers.
        class_names: Of labels that are text, by the numbers that the rows have.
        rejects: Rows that cannot be used.
        outside: Rows that a list of splits leaves out.
        first_missing: (row, place of the feature) of the first missing value; None if there is none.
    """

    part: int
    sums: ColumnSums
    file: int = -1
    n_rows: int = 0
    runs: list[Run] = field(default_factory=list)
    digest: int = 0
    smallest_label: float = np.inf
    largest_label: float = -np.inf
    are_whole: bool = True
    class_names: list[str] = field(default_factory=list)
    rejects: Rejects = field(default_factory=Rejects)
    outside: Rejects = field(default_factory=Rejects)
    first_missing: tuple[int, int] | None = None

    def to_json(self) -> str:
        """Return the JSON text that a task sends to the driver."""
        plain = {**vars(self), "sums": self.sums.to_lists(), "runs": [vars(run) for run in self.runs]}
        return json.dumps({**plain, "rejects": vars(self.rejects), "outside": vars(self.outside)})

    @classmethod
    def from_json(cls, text: str) -> PartSummary:
        """Return what ``to_json`` wrote."""
        fields = json.loads(text)
        fields["sums"] = ColumnSums.from_lists(fields["sums"])
        fields["runs"] = [Run(**run) for run in fields["runs"]]
        for name in ("rejects", "outside"):
            held = fields[name]
            fields[name] = Rejects(held["count"], [(row, called, why) for row, called, why in held["named"]])
        return cls(**fields)


Parts = Mapping[SplitName, Sequence[PartSummary]]
"""What tasks saw of each source: the training source, which is split, and the test source if there is one."""


def write_rows(batches: Iterable[pa.RecordBatch], recipe: RowRecipe, folder: Path, part: int) -> PartSummary:
    """Read a part of the table, write its rows as runs into a scratch folder, and return the summary.

    Memory: ``RUN_BYTES`` of rows, twice as they are sorted, and a batch.
    """
    summary = PartSummary(part, ColumnSums.none(recipe.n_features))
    names = ClassNames(recipe.class_names)
    file = _RowFile(folder / f"{part:05d}-{uuid4().hex}", summary, recipe)
    for batch in batches:
        if not batch.num_rows:
            continue
        rows, rejects = read_rows(batch, recipe, names, part=part, first=summary.n_rows)
        summary.n_rows += batch.num_rows
        summary.rejects.add(rejects.named, rejects.count, NAMED_OF_A_KIND)
        rows = _without_outside(rows, summary)
        _look(rows, summary)
        file.add(rows)
    file.flush()
    summary.class_names = names.names
    return summary


def _without_outside(rows: Rows, summary: PartSummary) -> Rows:
    """Return the rows that have a split; those that a list leaves out are noted by their ids."""
    is_outside = rows.split == OUTSIDE
    if not is_outside.any():
        return rows
    left_out = rows.chosen(is_outside)
    assert left_out.id is not None
    named = zip(left_out.position[:NAMED_OF_A_KIND].tolist(), left_out.id[:NAMED_OF_A_KIND].tolist(), strict=True)
    summary.outside.add([(row, shown_id(held), "") for row, held in named], len(left_out), NAMED_OF_A_KIND)
    return rows.chosen(~is_outside)


def shown_id(held: bytes | int) -> str:
    """Return the text of an id in a message."""
    return held.decode("utf-8", "replace") if isinstance(held, bytes) else str(held)


def _look(rows: Rows, summary: PartSummary) -> None:
    if not len(rows):
        return
    sums = ColumnSums.of(rows.chosen(rows.split == SPLITS.index("train")).features)
    summary.sums = summary.sums.merge(sums)
    summary.digest = (summary.digest + int(rows.state.sum(dtype=np.uint64))) % 2**64
    summary.smallest_label = min(summary.smallest_label, float(rows.label.min()))
    summary.largest_label = max(summary.largest_label, float(rows.label.max()))
    summary.are_whole = summary.are_whole and bool((rows.label == np.floor(rows.label)).all())
    if summary.first_missing is None and (is_missing := np.isnan(rows.features)).any():
        row, feature = np.argwhere(is_missing)[0].tolist()
        summary.first_missing = int(rows.position[row]), feature


class _RowFile:
    """Collects rows and writes them as runs. There is no file before the first run."""

    def __init__(self, path: Path, summary: PartSummary, recipe: RowRecipe) -> None:
        self._path = path
        self._summary = summary
        self._recipe = recipe
        self._held: list[Rows] = []
        self._n_bytes = 0
        self._offset = 0
        self._n_written = 0

    def add(self, rows: Rows) -> None:
        self._held.append(rows)
        self._n_bytes += rows.features.nbytes
        if self._n_bytes >= RUN_BYTES:
            self.flush()

    def flush(self) -> None:
        for number, split in enumerate(SPLITS):
            parts = [rows.chosen(rows.split == number) for rows in self._held]
            parts = [rows for rows in parts if len(rows)]
            if parts:
                self._write(split, parts)
        self._held.clear()
        self._n_bytes = 0

    def _write(self, split: SplitName, parts: Sequence[Rows]) -> None:
        key = np.concatenate([rows.key for rows in parts])
        order = np.argsort(key, kind="stable")
        row_position = np.empty_like(order)  # of each row in the run, so that rows are copied once
        row_position[order] = np.arange(len(order))
        id_bytes, group_bytes = (_longest([getattr(rows, name) for rows in parts]) for name in ("id", "group"))
        dtype = row_dtype(self._recipe, id_bytes, group_bytes)
        packed = np.empty(len(key), dtype)
        start = 0
        for rows in parts:
            stop = start + len(rows)
            for name in dtype.names or ():
                packed[name][row_position[start:stop]] = getattr(rows, "features" if name == "data" else name)
            start = stop
        keys = np.empty(len(key), _KEYS)
        for name in ("key", "name", "state", "label"):
            keys[name] = packed[name].reshape(len(key), -1)[:, 0]
        keys["content"] = np.concatenate([rows.content for rows in parts])[order]
        with self._path.with_suffix(".rows").open("ab") as handle:
            packed.tofile(handle)
        with self._path.with_suffix(".keys").open("ab") as handle:
            keys.tofile(handle)
        run = Run(
            self._path.name, split, self._offset, len(key), self._n_written, id_bytes, group_bytes, self._summary.part
        )
        self._summary.runs.append(run)
        self._offset += packed.nbytes
        self._n_written += len(key)


def _longest(parts: Sequence[npt.NDArray[Any] | None]) -> int:
    return max((part.dtype.itemsize for part in parts if part is not None and part.dtype.kind == "S"), default=0)


def row_dtype(recipe: RowRecipe, id_bytes: int, group_bytes: int) -> np.dtype[Any]:
    """Return one row's layout in a run."""
    fields: list[tuple[Any, ...]] = [
        ("key", np.uint64),
        ("name", np.uint64),
        ("state", np.uint64),
        ("position", np.int64),
        ("label", np.float64, (len(recipe.roles.labels),)),
    ]
    if recipe.roles.weight is not None:
        fields.append(("weight", np.float32))
    for name, size in (("group", group_bytes), ("id", id_bytes)):
        if getattr(recipe.roles, name) is not None:
            fields.append((name, f"S{size}" if size else np.int64))
    return np.dtype([*fields, ("data", recipe.dtype, (recipe.n_features,))])


@dataclass(frozen=True)
class RowKeys:
    """The driver's view of the rows of a run, in their order, (n_rows,) each.

    Attributes:
        key: Decides the place in the dataset; ascending.
        content: Hash of the features.
        name: Hash of the id, or of the whole row where there is none.
        state: Hash of all that is kept.
        label: The first one, as the part of the table numbers classes.
    """

    key: npt.NDArray[np.uint64]
    content: npt.NDArray[np.uint64]
    name: npt.NDArray[np.uint64]
    state: npt.NDArray[np.uint64]
    label: npt.NDArray[np.float64]


def read_keys(folder: Path, run: Run) -> RowKeys:
    """Return the keys of a run's rows."""
    keys = np.fromfile(
        (folder / run.file).with_suffix(".keys"), _KEYS, run.n_rows, offset=run.first_key * _KEYS.itemsize
    )
    return RowKeys(**{name: np.ascontiguousarray(keys[name]) for name in _KEYS.names or ()})


def read_run(
    folder: Path, run: Run, recipe: RowRecipe, rows: npt.NDArray[np.int64] | tuple[int, int]
) -> npt.NDArray[Any]:
    """Return rows of a run, as ``row_dtype`` has them: those of a range [start, stop), or the ones that are named."""
    dtype = row_dtype(recipe, run.id_bytes, run.group_bytes)
    path = (folder / run.file).with_suffix(".rows")
    if isinstance(rows, tuple):
        return np.fromfile(path, dtype, rows[1] - rows[0], offset=run.offset + rows[0] * dtype.itemsize)
    return np.array(np.memmap(path, dtype, "r", offset=run.offset, shape=(run.n_rows,))[rows])


def write_chosen(folder: Path, run: Run, rows: npt.NDArray[np.int64], repeats: npt.NDArray[np.int32]) -> None:
    """Write the numbers of the chosen rows of a run, ascending, and the earlier copies of each row."""
    chosen = np.empty(len(rows), CHOSEN)
    chosen["row"], chosen["repeat"] = rows, repeats
    np.save(_chosen_path(folder, run), chosen)


def read_chosen(folder: Path, run: Run, start: int, stop: int) -> npt.NDArray[Any]:
    """Return entries ``[start, stop)`` of what ``write_chosen`` noted, as ``CHOSEN`` has them."""
    return np.array(np.load(_chosen_path(folder, run), mmap_mode="r")[start:stop])


def _chosen_path(folder: Path, run: Run) -> Path:
    return folder / f"{run.file}-{run.first_key}.chosen.npy"


def one_by_one(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Return the results of work in this process: the ``Spread`` of a small table."""
    return [work(item) for item in items]
