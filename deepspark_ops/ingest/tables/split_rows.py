"""The rows of a table as the driver sees them: hashes and labels, some 40 bytes each, and which of them are taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from deepspark_ops.ingest.records import Positions
from deepspark_ops.ingest.selection.records_of_split import About
from deepspark_ops.ingest.selection.row_hash import Hashes, mixed, repeats
from deepspark_ops.ingest.tables.columns import Flags
from deepspark_ops.ingest.tables.known_files import StoredRun
from deepspark_ops.ingest.tables.row_batch import RowRecipe
from deepspark_ops.ingest.tables.row_files import RowKeys, Run, read_keys, read_run, shown_id

CODES_SUFFIX = ".codes.npy"
"""Of a file beside a part's rows: which class each number is that its labels have."""
_LISTS: Final = ("runs", "keys", "labels", "rows", "repeats")
_SALTS: Final = {"limit": 0x6C696D, "balance": 0x62616C}
"""A limit by the hash of the split would take test rows first."""


@dataclass(frozen=True)
class SplitRows:
    """The rows of a split that are taken, see ``Choosable``.

    Attributes:
        folder: Of the runs.
        recipe: How rows were read.
        runs: Where they are; those of shards come before those that were read.
        keys: Of each run, all of its rows.
        labels: Of each run, classes where there are some.
        rows: Of each run, ascending; one that is taken several times stands there as often.
        repeats: How often each of these rows is taken before, also by rows of shards that stay.
    """

    unit: ClassVar[str] = "row"
    owner: ClassVar[str] = "group, id or content"
    folder: Path
    recipe: RowRecipe
    runs: Sequence[Run | StoredRun]
    keys: Sequence[RowKeys]
    labels: Sequence[npt.NDArray[np.float64]]
    rows: Sequence[Positions]
    repeats: Sequence[npt.NDArray[np.int32]]

    @classmethod
    def joined(cls, parts: Sequence[SplitRows]) -> SplitRows:
        """Return the rows of several splits together."""
        lists = (chain.from_iterable(getattr(part, name) for part in parts) for name in _LISTS)
        return cls(parts[0].folder, parts[0].recipe, *map(list, lists))

    def cut(self, parts: Sequence[SplitRows]) -> Iterator[SplitRows]:
        """Yield the rows that are taken of each of the parts that were ``joined``."""
        start = 0
        for part in parts:
            stop = start + len(part.runs)
            yield replace(part, rows=self.rows[start:stop], repeats=self.repeats[start:stop])
            start = stop

    def __len__(self) -> int:
        """Return how many are taken."""
        return sum(len(rows) for rows in self.rows)

    def once(self) -> SplitRows:
        """Return the same rows, each once."""
        rows = [np.unique(rows) for rows in self.rows]
        return replace(self, rows=rows, repeats=list(map(_no_repeats, rows)))

    def class_numbers(self) -> Positions:
        """See ``Choosable``."""
        return self.label().astype(np.int64)

    def hashes(self, purpose: str, seed: int) -> Hashes:
        """See ``Choosable``."""
        return mixed(mixed(self.column("name"), _SALTS[purpose]), seed)

    def order(self) -> Positions:
        """See ``Choosable``."""
        return np.argsort(self.column("state"), kind="stable")

    def stored_order(self, *, shuffle: bool, seed: int) -> Positions:
        """See ``Choosable``: keys are made of the options already; rows of equal keys go run by run."""
        return np.argsort(self.column("key"), kind="stable")

    def ties(self) -> tuple[Hashes, ...]:
        """See ``Choosable``."""
        return self.column("key"), self.column("state")

    def contents(self) -> tuple[Hashes, Flags]:
        """See ``Choosable``."""
        return self.column("content"), np.ones(len(self), bool)

    def same_text(self, of_split: str, of: About, record: About) -> str:
        """See ``Choosable``."""
        return f"has the features of {of_split} {of.name}"

    def column(self, name: str) -> Hashes:
        """Return a column of the keys of the rows that are taken, run by run."""
        return _joined([getattr(keys, name)[rows] for keys, rows in zip(self.keys, self.rows, strict=True)], np.uint64)

    def label(self) -> npt.NDArray[np.float64]:
        """Return the labels of the rows that are taken, likewise."""
        return _joined([labels[rows] for labels, rows in zip(self.labels, self.rows, strict=True)], np.float64)

    def selected(self, indexes: Positions) -> SplitRows:
        """See ``Choosable``."""
        starts = np.cumsum([0, *(len(rows) for rows in self.rows)])
        cuts = np.searchsorted(indexes, starts)
        of_runs = [indexes[cuts[i] : cuts[i + 1]] - starts[i] for i in range(len(self.rows))]
        rows = [held[chosen] for held, chosen in zip(self.rows, of_runs, strict=True)]
        times = [held[chosen] + repeats(chosen) for held, chosen in zip(self.repeats, of_runs, strict=True)]
        return replace(self, rows=rows, repeats=times)

    def files(self, file_of: Mapping[str, int]) -> npt.NDArray[np.int32]:
        """Return the (n,) files of the rows that are taken; ``file_of``: name of a run's file -> number of the file."""
        of_runs = [
            run.files[rows] if isinstance(run, StoredRun) else np.full(len(rows), file_of[run.file], np.int32)
            for run, rows in zip(self.runs, self.rows, strict=True)
        ]
        return _joined(of_runs, np.int32)

    def about(self, index: int) -> About:
        """See ``Choosable``; the position is that in a part of the table."""
        ends = np.cumsum([len(rows) for rows in self.rows])
        number = int(np.searchsorted(ends, index, "right"))
        run, row = self.runs[number], int(self.rows[number][index - int(ends[number])])
        if isinstance(run, StoredRun):
            return About(*run.describe(row), None)
        held = read_run(self.folder, run, self.recipe, (row, row + 1))[0]
        position = int(held["position"])
        shown = f"row {position} of part {run.part}" if self.recipe.roles.id is None else shown_id(held["id"])
        # A single one as it was looked up: each part of a table numbers names of classes by itself.
        labels = held["label"] if len(held["label"]) > 1 else self.labels[number][row : row + 1]
        return About(shown, labels.astype(np.float32).tolist(), position)


def _no_repeats(rows: Positions) -> npt.NDArray[np.int32]:
    return np.zeros(len(rows), np.int32)


def _joined(parts: Sequence[npt.NDArray[Any]], dtype: type[np.generic]) -> npt.NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, dtype)


def all_rows(
    folder: Path, recipe: RowRecipe, runs: Sequence[Run], stored: Sequence[StoredRun] = (), *, has_codes: bool
) -> SplitRows:
    """Return all rows of a split's runs and of ``stored``, its rows that were not read.

    ``has_codes``: whether a file beside each part says which class its numbers are.
    """
    keys = [read_keys(folder, run) for run in runs]
    labels = [held.label for held in keys]
    if has_codes:
        codes = [np.load((folder / run.file).with_suffix(CODES_SUFFIX)) for run in runs]
        labels = [code[label.astype(np.int64)] for code, label in zip(codes, labels, strict=True)]
    of_stored = [run.keys for run in stored]
    keys, labels = of_stored + keys, [held.label for held in of_stored] + labels
    rows = [np.arange(len(held.name)) for held in keys]
    return SplitRows(folder, recipe, [*stored, *runs], keys, labels, rows, list(map(_no_repeats, rows)))
