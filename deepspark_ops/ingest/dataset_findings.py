"""What is found by looking at all records of a dataset together: equal ones, and classes with too few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepspark_ops.ingest.findings import Finding, Findings
from deepspark_ops.ingest.records import SourceIndex
from deepspark_ops.ingest.versions.stored_shard import StoredShard
from deepspark_ops.shards.manifest import SPLITS, SplitName


def find_duplicates(shards: Mapping[SplitName, Sequence[StoredShard]]) -> dict[SplitName, Findings]:
    """Return the samples whose content an earlier one has: training samples go first, then by place in the source.

    A record that balancing takes several times is no duplicate of itself.

    Args:
        shards: All of the dataset, by split.
    """
    found = {split: Findings() for split in SPLITS}
    parts = [
        _Part(split, shard, rows)
        for split in SPLITS
        for shard in shards.get(split, ())
        if len(rows := np.flatnonzero((shard.positions >= 0) & (shard.records.repeats == 0)))
    ]
    if not parts:
        return found
    digests = np.concatenate([part.shard.records.digests[part.rows] for part in parts])
    positions = np.concatenate([part.shard.positions[part.rows] for part in parts])
    split_number = np.repeat([SPLITS.index(part.split) for part in parts], [len(part.rows) for part in parts])
    order = np.lexsort((positions, split_number, digests))
    is_new = np.append(True, digests[order][1:] != digests[order][:-1])
    first = order[np.maximum.accumulate(np.where(is_new, np.arange(len(order)), 0))]
    again = np.flatnonzero(~is_new)
    ends = np.cumsum([len(part.rows) for part in parts])
    for place, earlier in zip(order[again].tolist(), first[again].tolist(), strict=True):
        split, name, label, position = _about(parts, ends, place)
        of_split, of_name, of_label, _ = _about(parts, ends, earlier)
        if split != of_split:
            kind = f"duplicate_in_{split}"
        else:
            kind = "duplicate" if label == of_label else "duplicate_other_label"
        text = f"has the content of {of_split} record {of_name}, label {of_label}; its own label is {label}"
        found[split].add(Finding(kind, name, text, position))
    return found


@dataclass(frozen=True)
class _Part:
    split: SplitName
    shard: StoredShard
    rows: npt.NDArray[np.int64]


def _about(parts: Sequence[_Part], ends: npt.NDArray[np.int64], place: int) -> tuple[SplitName, str, int, int]:
    """Return split, name, label and position of the sample at a place in the parts put together."""
    number = int(np.searchsorted(ends, place, side="right"))
    part = parts[number]
    row = int(part.rows[place - (ends[number] - len(part.rows))])
    records = part.shard.records
    return part.split, records.names[row], int(records.labels[row]), int(part.shard.positions[row])


def find_thin_classes(label_histogram: npt.NDArray[np.int64], class_names: Sequence[str]) -> Findings:
    """Return the classes of the training set without a sample, and those with one; of a single class that alone.

    Args:
        label_histogram: (n_classes,) training samples of each label.
        class_names: In label order, may be empty.
    """
    found = Findings()
    labels_there = np.flatnonzero(label_histogram)
    if len(labels_there) == 1:
        label = int(labels_there[0])
        name = class_names[label] if class_names else str(label)
        found.add(Finding("one_label", name, f"every training sample has label {label}; a net has nothing to learn"))
        return found
    for label in np.flatnonzero(label_histogram < 2).tolist():
        name = class_names[label] if class_names else str(label)
        count = int(label_histogram[label])
        kind = "class_with_one_sample" if count else "class_without_sample"
        found.add(Finding(kind, name, f"label {label} has {count} training sample{'' if count else 's'}"))
    return found


def find_repeated_paths(index: SourceIndex) -> Findings:
    """Return the names that a source gives more than once, with different labels."""
    found = Findings()
    if len(set(index.names)) == len(index.names):
        return found
    labels: dict[str, set[int]] = {}
    for name, label in zip(index.names, index.labels.tolist(), strict=True):
        labels.setdefault(name, set()).add(label)
    for place, name in enumerate(index.names):
        if len(given := labels[name]) > 1:
            shown = ", ".join(str(label) for label in sorted(given))
            found.add(Finding("path_with_two_labels", name, f"is listed with the labels {shown}", place))
            labels[name] = set()
    return found
