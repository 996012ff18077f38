"""Which rows go into which shard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest.plan import Recipe, shard_name
from deepspark_ops.ingest.records import Positions
from deepspark_ops.ingest.shard_assignment import asked_shards
from deepspark_ops.ingest.tables.row_files import Run, write_chosen
from deepspark_ops.ingest.tables.split_rows import SplitRows
from deepspark_ops.ingest.tables.table_shards import TableShardTask, cut_runs, rows_per_shard
from deepspark_ops.ingest.versions.base import Base, first_number
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.manifest import SplitName
from deepspark_ops.shards.row_records import RowRecords

NO_ROWS = np.empty(0, np.int64)


def note_chosen(splits: Mapping[SplitName, SplitRows], folder: Path) -> None:
    """Write beside each run which of its rows are taken, for the tasks that read them."""
    for chosen in splits.values():
        for run, taken in zip(chosen.runs, chosen.rows, strict=True):
            if isinstance(run, Run):
                write_chosen(folder, run, taken)


def shard_tasks(
    config: IngestConfig,
    recipe: Recipe,
    splits: Mapping[SplitName, SplitRows],
    n_features: int,
    base: Base[RowRecords] | None,
) -> tuple[list[TableShardTask], dict[SplitName, Positions]]:
    """Return the tasks, and of each split the places of the rows that are written, in the order of its shards."""
    tasks: list[TableShardTask] = []
    order: dict[SplitName, Positions] = {}
    for split, chosen in splits.items():
        order[split] = NO_ROWS
        if not len(chosen):
            continue
        starts = np.cumsum([0, *(len(taken) for taken in chosen.rows)])
        of_shards = []
        keys = [held.key[taken] for held, taken in zip(chosen.keys, chosen.rows, strict=True)]
        n_rows = len(chosen)
        most = rows_per_shard(config.samples_per_shard if config.shards is None else n_rows, n_features)
        least = 1 if config.shards is None else asked_shards(n_rows, most, config.shards, where=split)
        first = first_number(config, recipe.sha256, split, None if base is None else base.manifests.get(split))
        for number, ranges in enumerate(cut_runs(keys, most, least), start=first):
            found = zip(chosen.runs, ranges, strict=True)
            pieces = [(keys[i], starts[i], start, stop) for i, (start, stop) in enumerate(ranges)]
            places = np.concatenate([np.arange(first + start, first + stop) for _, first, start, stop in pieces])
            of_keys = np.concatenate([of_run[start:stop] for of_run, _, start, stop in pieces])
            of_shards.append(places[np.argsort(of_keys, kind="stable")])
            tasks.append(
                TableShardTask(
                    split=split,
                    number=number,
                    path=DatasetPaths(config.output).split(split) / shard_name(config, recipe, split, number),
                    pieces=tuple(
                        (run, start, stop) for run, (start, stop) in found if isinstance(run, Run) and stop > start
                    ),
                )
            )
        order[split] = np.concatenate(of_shards)
    return tasks, order
