"""The rows of one of two datasets of a table alone, found by hashes, so that no other row is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deepspark_ops.ingest.selection.row_hash import Hashes, combined, mixed, numbered
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.excluded_rows import kept_rows
from deepspark_ops.shards.files.row_records import read_row_records
from deepspark_ops.shards.hash_membership import are_in
from deepspark_ops.shards.manifest import SPLITS, DatasetManifest, SplitName, shard_folder
from deepspark_ops.shards.reader import open_dataset
from deepspark_ops.stores.store_path import DataPath

Sample = tuple[str, str, int, int]
"""(split, name, label, checksum)."""
_Dataset = tuple[DataPath, Mapping[SplitName, DatasetManifest]]


@dataclass(frozen=True)
class _Rows:
    """All rows of a dataset that are taken for the first time, (n,) each.

    Attributes:
        hashes: No two are equal.
        split: Places in ``SPLITS``.
        shard: In the split's manifest.
        sample: Among those of the shard that count.
        name: Hash of the id.
        state: Hash of all that is kept.
    """

    hashes: Hashes
    split: npt.NDArray[np.int64]
    shard: npt.NDArray[np.int64]
    sample: npt.NDArray[np.int64]
    name: Hashes
    state: Hashes


def differing_rows(old_dataset: _Dataset, new_dataset: _Dataset) -> tuple[Counter[Sample], Counter[Sample]]:
    """Return the rows of the old dataset alone and of the new dataset alone, named by id, without ids by hash.

    Args:
        old_dataset: A dataset and the manifests of its splits.
        new_dataset: Likewise.

    Raises:
        DataError: One is damaged.
    """
    rows = _rows(*old_dataset), _rows(*new_dataset)
    hashes = [part.hashes for part in rows]
    only_before, only_after = (np.flatnonzero(~are_in(hashes[i], hashes[1 - i], is_unique=True)) for i in range(2))
    return _samples(*old_dataset, rows[0], only_before), _samples(*new_dataset, rows[1], only_after)


def _rows(dataset: DataPath, manifests: Mapping[SplitName, DatasetManifest]) -> _Rows:
    parts: list[npt.NDArray[np.uint64]] = [np.empty((5, 0), np.uint64)]
    for split, manifest in manifests.items():
        for number, shard in enumerate(manifest.shards):
            assert shard.rows is not None
            held = read_row_records(shard_folder(DatasetPaths(dataset).split(split)) / shard.rows.file)
            counted_rows = kept_rows(shard.excluded, shard.n_rows)
            samples = np.flatnonzero(held.repeats[counted_rows] == 0)
            rows = counted_rows[samples]
            locations = [np.full(len(rows), value, np.uint64) for value in (SPLITS.index(manifest.split), number)]
            parts.append(np.stack([*locations, samples.astype(np.uint64), held.names[rows], held.states[rows]]))
    split_of, shard_of, sample, names, states = np.concatenate(parts, axis=1)
    hashes = numbered(combined(names, states, mixed(split_of)), np.arange(len(names)))
    return _Rows(hashes, split_of.astype(np.int64), shard_of.astype(np.int64), sample.astype(np.int64), names, states)


def _samples(
    dataset: DataPath, manifests: Mapping[SplitName, DatasetManifest], rows: _Rows, indexes: npt.NDArray[np.int64]
) -> Counter[Sample]:
    samples: Counter[Sample] = Counter()
    for split, manifest in manifests.items():
        of_split = indexes[rows.split[indexes] == SPLITS.index(manifest.split)]
        with open_dataset(DatasetPaths(dataset).split(split)) as opened:
            for number in np.unique(rows.shard[of_split]).tolist():
                n_samples = manifest.shards[number].n_samples
                has_ids = manifest.table is not None and manifest.table.id is not None
                ids = opened.texts(number, 0, n_samples, "id") if has_ids else None
                labels: Any = opened.read(number, 0, n_samples)[1] if manifest.n_classes else np.zeros(n_samples)
                for index in of_split[rows.shard[of_split] == number].tolist():
                    sample = int(rows.sample[index])
                    name = f"row {int(rows.name[index]):016x}" if ids is None else ids[sample]
                    samples[split, name, int(labels[sample]), int(rows.state[index])] += 1
    return samples
