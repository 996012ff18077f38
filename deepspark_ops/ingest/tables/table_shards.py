"""From sorted runs to shards: the rows of each shard, and the task that writes a shard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deepspark_ops.ingest.records import Positions
from deepspark_ops.ingest.shard_task import NewShard, ShardResult, errors_in
from deepspark_ops.ingest.tables.column_sums import ColumnSums
from deepspark_ops.ingest.tables.row_batch import RowRecipe
from deepspark_ops.ingest.tables.row_files import Run, read_chosen, read_run, row_dtype, write_chosen
from deepspark_ops.ingest.tables.split_rows import CODES_SUFFIX, SplitRows
from deepspark_ops.shards.files.hdf5_shard import write_hdf5_columns
from deepspark_ops.shards.files.row_records import RowRecords, rows_path, write_row_records
from deepspark_ops.shards.manifest import SplitName, sha256_of_file
from deepspark_ops.shards.table_columns import TableColumns
from deepspark_ops.stores.writing import local_output

MAX_SHARD_BYTES = 2**26
"""Of features in float32: a task holds a shard's rows to sort them."""
BLOCK_BYTES = 2**23
"""Of features in float64 that are worked on at a time."""

Piece = tuple[Run, int, int]
"""Rows [start, stop) of a run; where some are chosen, of those that are."""


def rows_per_shard(samples_per_shard: int, n_features: int) -> int:
    """Return the configured number, or fewer where a shard would be too large for a task's memory."""
    return max(1, min(samples_per_shard, MAX_SHARD_BYTES // (4 * n_features)))


@dataclass(frozen=True)
class TableShards:
    """The common input of all shard tasks of a table; a worker receives this object once.

    Attributes:
        folder: Scratch folder of the runs.
        recipe: Recipe of the rows.
        columns: Columns of the dataset, with mean and deviation.
        n_classes: Length of the label counts; 0 where labels are values.
        has_codes: Whether each part numbers class names by itself; a file beside the rows has the classes.
        are_chosen: Whether files beside the rows list the chosen rows; else all rows are chosen.
    """

    folder: Path
    recipe: RowRecipe
    columns: TableColumns
    n_classes: int
    has_codes: bool
    are_chosen: bool = False


@dataclass(frozen=True)
class TableShardTask(NewShard):
    """The rows of a shard.

    Attributes:
        pieces: Rows of runs.
    """

    pieces: tuple[Piece, ...]

    @property
    def n_records(self) -> int:
        """Number of rows."""
        return sum(stop - start for _, start, stop in self.pieces)

    def sample(self, share: float) -> TableShardTask:
        """Return the task with a share of the rows of each piece, at least one row."""
        pieces = ((run, start, start + max(1, round(share * (stop - start)))) for run, start, stop in self.pieces)
        return replace(self, pieces=tuple(pieces))


def run_table_shard(task: TableShardTask, shared: TableShards) -> ShardResult:
    """Write the shard of one task: its rows in the order of their keys, features standardised."""
    result = ShardResult(task.number, task.split, np.zeros(shared.n_classes, np.int64))
    with errors_in(result, task.path):
        held, order = _columns(task, shared)
        labels = held["label"]
        classes = labels[:, 0].astype(np.int64) if shared.n_classes else None
        stored = {"data": held["data"], "label": labels[:, 0] if labels.shape[1] == 1 else labels}
        stored |= {name: held[name] for name in ("weight", "group", "id") if name in held}
        if classes is not None:
            result.label_counts = np.bincount(classes, minlength=shared.n_classes)
        with local_output(task.path) as path:
            write_hdf5_columns(path, stored, order)
            result.n_bytes, result.sha256 = path.stat().st_size, sha256_of_file(path)
        with local_output(rows_path(task.path)) as path:
            write_row_records(path, RowRecords(*(held[name][order] for name in ("name", "state", "repeat"))))
            result.records_sha256 = sha256_of_file(path)
        result.n_samples = len(order)
    return result


def _columns(task: TableShardTask, shared: TableShards) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[np.int64]]:
    """Return the rows of all pieces column by column, features as they are stored, and their order in the shard.

    A piece at a time becomes float32, so that a shard of a table in float64 takes no more memory than another.
    """
    longest = [max(getattr(run, name) for run, _, _ in task.pieces) for name in ("id_bytes", "group_bytes")]
    n_rows = task.n_records
    layout = row_dtype(shared.recipe, *longest)
    types = {name: layout[name].subdtype or (layout[name], ()) for name in layout.names or () if name != "position"}
    types |= {"data": (np.dtype(np.float32), types["data"][1]), "label": (np.dtype(np.float32), types["label"][1])}
    held = {name: np.empty((n_rows, *shape), dtype) for name, (dtype, shape) in types.items()}
    held["repeat"] = np.empty(n_rows, np.int32)
    most = max(1, BLOCK_BYTES // (8 * shared.columns.n_features))
    filled = 0
    for run, start, stop in task.pieces:
        codes = np.load((shared.folder / run.file).with_suffix(CODES_SUFFIX)) if shared.has_codes else None
        for first in range(start, stop, most):
            piece = (run, first, min(stop, first + most))
            rows, times = read_piece(shared.folder, shared.recipe, piece, are_chosen=shared.are_chosen)
            to = slice(filled, filled + len(rows))
            filled += len(rows)
            if codes is not None:
                rows["label"] = codes[rows["label"].astype(np.int64)]
            for name in types:
                held[name][to] = shared.columns.apply(rows["data"]) if name == "data" else rows[name]
            held["repeat"][to] = times
    return held, np.argsort(held["key"], kind="stable")


def read_piece(
    folder: Path, recipe: RowRecipe, piece: Piece, *, are_chosen: bool
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32]]:
    """Return the rows of a piece in the layout ``row_dtype``, and the (n,) numbers of earlier copies."""
    run, start, stop = piece
    if not are_chosen:
        return read_run(folder, run, recipe, (start, stop)), np.zeros(stop - start, np.int32)
    chosen = read_chosen(folder, run, start, stop)
    return read_run(folder, run, recipe, chosen["row"]), chosen["repeat"]


def chosen_sums(folder: Path, recipe: RowRecipe, run: Run, n_chosen: int) -> ColumnSums:
    """Return the sums of the features of a run's chosen rows, copies included."""
    sums = ColumnSums.none(recipe.n_features)
    rows = max(1, BLOCK_BYTES // (8 * recipe.n_features))
    for start in range(0, n_chosen, rows):
        piece = (run, start, min(n_chosen, start + rows))
        sums = sums.merge(ColumnSums.of(read_piece(folder, recipe, piece, are_chosen=True)[0]["data"]))
    return sums


def note_chosen(splits: Mapping[SplitName, SplitRows], folder: Path) -> None:
    """Write the numbers of each run's chosen rows for the tasks."""
    for chosen in splits.values():
        for run, rows, repeats in zip(chosen.runs, chosen.rows, chosen.repeats, strict=True):
            if isinstance(run, Run):
                write_chosen(folder, run, rows, repeats)


def row_task(shard: NewShard, chosen: SplitRows, positions: Positions, _first: int) -> TableShardTask:
    """Return the task of a shard: ``positions`` are a piece of ``SplitRows.stored_order`` of the chosen rows."""
    starts = np.cumsum([0, *(len(rows) for rows in chosen.rows)])
    numbers = np.searchsorted(starts, positions, "right") - 1
    n_rows = np.bincount(numbers, minlength=len(chosen.runs)).tolist()
    first = np.full(len(starts), starts[-1])
    np.minimum.at(first, numbers, positions)
    pieces = [
        (run, int(first[i] - starts[i]), int(first[i] - starts[i]) + n_rows[i])
        for i, run in enumerate(chosen.runs)
        if isinstance(run, Run) and n_rows[i]
    ]
    return TableShardTask(**vars(shard), pieces=tuple(pieces))
