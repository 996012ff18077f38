"""How two datasets, or two versions of one, differ: sample by sample, class by class, option by option."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from deepspark_ops.ingest.inspect.facts import read_splits
from deepspark_ops.ingest.selection.row_hash import Hashes, combined, mixed, numbered
from deepspark_ops.ingest.versions.kept_versions import version_digest
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.class_name import class_name
from deepspark_ops.shards.excluded_rows import kept_rows
from deepspark_ops.shards.files.row_records import read_row_records
from deepspark_ops.shards.files.shard_records import read_records
from deepspark_ops.shards.hash_membership import are_in
from deepspark_ops.shards.manifest import SPLITS, DatasetManifest, SplitName, shard_folder
from deepspark_ops.shards.reader import open_dataset
from deepspark_ops.stores.store_path import DataPath

DIFFERENCES_VERSION: Final = 1
_Sample = tuple[str, str, int, int]
"""(split, name, label, checksum)."""
_Dataset = tuple[DataPath, Mapping[SplitName, DatasetManifest]]


@dataclass(frozen=True)
class Moved:
    """A sample that both have, and not alike.

    Attributes:
        name: Of its record.
        before: Split, or class.
        after: Likewise.
    """

    name: str
    before: str
    after: str


@dataclass(frozen=True)
class DatasetDifference:
    """The difference of ``after``.

    Attributes:
        before: One dataset and its digest.
        after: The other.
        added: Split -> names of samples that only ``after`` has; None where nothing is known of the samples.
        removed: Split -> names of samples that only ``before`` has.
        changed: Split -> names of samples with another content.
        relabelled: Split -> samples of another class.
        moved: Samples that are in another split.
        classes: Split -> class -> samples before and after, where the numbers differ.
        options: Option -> before and after.
    """

    before: tuple[str, str]
    after: tuple[str, str]
    added: Mapping[str, list[str]] | None
    removed: Mapping[str, list[str]]
    changed: Mapping[str, list[str]]
    relabelled: Mapping[str, list[Moved]]
    moved: list[Moved]
    classes: Mapping[str, Mapping[str, tuple[int, int]]]
    options: Mapping[str, tuple[Any, Any]]

    @property
    def is_equal(self) -> bool:
        """Whether the samples are the same ones, though files and options may be others."""
        parts = (self.added, self.removed, self.changed, self.relabelled, self.moved, self.classes)
        return self.before[1] == self.after[1] or (self.added is not None and not any(parts))

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "format_version": DIFFERENCES_VERSION,
            "before": {"dataset": self.before[0], "digest": self.before[1]},
            "after": {"dataset": self.after[0], "digest": self.after[1]},
            "is_equal": self.is_equal,
            "added": None if self.added is None else dict(self.added),
            "removed": None if self.added is None else dict(self.removed),
            "changed": None if self.added is None else dict(self.changed),
            "relabelled": {split: [asdict(sample) for sample in samples] for split, samples in self.relabelled.items()},
            "moved": [asdict(sample) for sample in self.moved],
            "classes": {
                split: {name: {"before": pair[0], "after": pair[1]} for name, pair in samples.items()}
                for split, samples in self.classes.items()
            },
            "options": {name: {"before": pair[0], "after": pair[1]} for name, pair in self.options.items()},
        }


def compare_datasets(old_dataset: DataPath, new_dataset: Path) -> DatasetDifference:
    """Return how ``new_dataset`` differs from ``old_dataset``.

    Raises:
        DataError: There is no dataset, or one is damaged.
    """
    manifests = read_splits(old_dataset), read_splits(new_dataset)
    of_tables = [held["train"].table is not None for held in manifests]
    differences = _Differences(_class_names(manifests[0]), _class_names(manifests[1]), are_rows=all(of_tables))
    shards = [shard for held in manifests for manifest in held.values() for shard in manifest.shards]
    knows = of_tables[0] == of_tables[1] and all(shard.beside for shard in shards)
    if knows and of_tables[0]:
        differences.add(*_differing_rows((old_dataset, manifests[0]), (new_dataset, manifests[1])))
    elif knows:
        samples = [_samples(path, held) for path, held in zip((old_dataset, new_dataset), manifests, strict=True)]
        differences.add(samples[0] - samples[1], samples[1] - samples[0])
    return DatasetDifference(
        before=(str(old_dataset), version_digest(old_dataset)),
        after=(str(new_dataset), version_digest(new_dataset)),
        added=differences.added if knows else None,
        removed=differences.removed,
        changed=differences.changed,
        relabelled=differences.relabelled,
        moved=differences.moved,
        classes=_class_counts(*manifests),
        options=_options(manifests[0]["train"].options, manifests[1]["train"].options),
    )


class _Differences:
    def __init__(self, names_before: tuple[str, ...], names_after: tuple[str, ...], *, are_rows: bool) -> None:
        self._names = names_before, names_after
        self._are_rows = are_rows
        self.added: dict[str, list[str]] = {}
        self.removed: dict[str, list[str]] = {}
        self.changed: dict[str, list[str]] = {}
        self.relabelled: dict[str, list[Moved]] = {}
        self.moved: list[Moved] = []

    def add(self, gone: Counter[_Sample], come: Counter[_Sample]) -> None:
        """Sort out what only one of the two has: samples of one name are the same one, changed."""
        by_name: dict[str, list[_Sample]] = {}
        for sample in sorted(come.elements(), reverse=True):
            by_name.setdefault(sample[1], []).append(sample)
        for sample in sorted(gone.elements()):
            if by_name.get(sample[1]):
                self._pair(sample, by_name[sample[1]].pop())
            else:
                self.removed.setdefault(sample[0], []).append(sample[1])
        for split, name, _, _ in sorted(sample for left in by_name.values() for sample in left):
            self.added.setdefault(split, []).append(name)

    def _pair(self, old_sample: _Sample, new_sample: _Sample) -> None:
        split, name, label, digest = old_sample
        if new_sample[0] != split:
            self.moved.append(Moved(name, split, new_sample[0]))
        if new_sample[2] != label:
            classes = (class_name(self._names[0], label), class_name(self._names[1], new_sample[2]))
            self.relabelled.setdefault(new_sample[0], []).append(Moved(name, *classes))
        # The digest of a row has its label in it.
        if new_sample[3] != digest and not (self._are_rows and new_sample[2] != label):
            self.changed.setdefault(new_sample[0], []).append(name)


def _samples(dataset: DataPath, manifests: Mapping[SplitName, DatasetManifest]) -> Counter[_Sample]:
    """Return all samples; one that balancing repeats counts once."""
    samples: Counter[_Sample] = Counter()
    for split, manifest in manifests.items():
        for shard in manifest.shards:
            assert shard.records is not None
            held = read_records(shard_folder(DatasetPaths(dataset).split(split)) / shard.records.file)
            labels, digests, times = held.labels.tolist(), held.digests.tolist(), held.repeats.tolist()
            for row in kept_rows(shard.excluded, shard.n_rows).tolist():
                if not times[row]:
                    samples[split, held.names[row], labels[row], digests[row]] += 1
    return samples


def _class_names(manifests: Mapping[SplitName, DatasetManifest]) -> tuple[str, ...]:
    return manifests["train"].class_names


def _class_counts(
    old_manifests: Mapping[SplitName, DatasetManifest], new_manifests: Mapping[SplitName, DatasetManifest]
) -> dict[str, dict[str, tuple[int, int]]]:
    differing_counts: dict[str, dict[str, tuple[int, int]]] = {}
    for split in dict.fromkeys((*old_manifests, *new_manifests)):
        counts = [
            {
                class_name(_class_names(held), label): count
                for label, count in enumerate(held[split].label_histogram if split in held else ())
            }
            for held in (old_manifests, new_manifests)
        ]
        names = dict.fromkeys(name for pair in zip_longest(*counts) for name in pair if name is not None)
        pairs = {name: (counts[0].get(name, 0), counts[1].get(name, 0)) for name in names}
        if differing := {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}:
            differing_counts[split] = differing
    return differing_counts


def _options(old_options: Mapping[str, Any], new_options: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = sorted(set(old_options) | set(new_options))
    return {
        name: (old_options.get(name), new_options.get(name))
        for name in names
        if old_options.get(name) != new_options.get(name)
    }


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


def _differing_rows(old_dataset: _Dataset, new_dataset: _Dataset) -> tuple[Counter[_Sample], Counter[_Sample]]:
    """Return the rows of the old dataset alone and of the new dataset alone, named by id, without ids by hash.

    Raises:
        DataError: One is damaged.
    """
    rows = _rows(*old_dataset), _rows(*new_dataset)
    hashes = [part.hashes for part in rows]
    only_before, only_after = (np.flatnonzero(~are_in(hashes[i], hashes[1 - i], is_unique=True)) for i in range(2))
    return _samples_of_rows(*old_dataset, rows[0], only_before), _samples_of_rows(*new_dataset, rows[1], only_after)


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


def _samples_of_rows(
    dataset: DataPath, manifests: Mapping[SplitName, DatasetManifest], rows: _Rows, indexes: npt.NDArray[np.int64]
) -> Counter[_Sample]:
    samples: Counter[_Sample] = Counter()
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
