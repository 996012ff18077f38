"""What is found by looking at all records of a dataset together: equal ones, and classes with too few."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from deepspark_ops.ingest.findings import Finding, Findings
from deepspark_ops.ingest.records import SourceIndex
from deepspark_ops.ingest.shard_task import ShardResult, ShardTask
from deepspark_ops.shards.manifest import SPLITS, SplitName


def find_duplicates(tasks: Sequence[ShardTask], results: Sequence[ShardResult]) -> dict[SplitName, Findings]:
    """Return the samples whose content an earlier one has: training samples go first, then by place.

    Args:
        tasks: Those of the results, in any order.
        results: With positions and digests of the samples written.
    """
    found = {split: Findings() for split in SPLITS}
    parts = [result for result in results if len(result.digests)]
    if not parts:
        return found
    digests = np.concatenate([np.frombuffer(part.digests, np.uint64) for part in parts])
    positions = np.concatenate([np.frombuffer(part.kept, np.int64) for part in parts])
    split_number = np.repeat([SPLITS.index(part.split) for part in parts], [len(part.digests) for part in parts])
    order = np.lexsort((positions, split_number, digests))
    is_new = np.append(True, digests[order][1:] != digests[order][:-1])
    first = order[np.maximum.accumulate(np.where(is_new, np.arange(len(order)), 0))]
    # A record that balancing takes several times is no duplicate of itself.
    is_same = np.append(False, np.diff(positions[order]) == 0) & np.append(False, np.diff(split_number[order]) == 0)
    again = np.flatnonzero(~is_new & ~is_same)
    if not len(again):
        return found
    wanted = {int(place) for pair in (order[again], first[again]) for place in pair}
    about = _about(tasks, parts, wanted)
    for place, earlier in zip(order[again].tolist(), first[again].tolist(), strict=True):
        split, name, label, position = about[place]
        of_split, of_name, of_label, _ = about[earlier]
        if split != of_split:
            kind = f"duplicate_in_{split}"
        else:
            kind = "duplicate" if label == of_label else "duplicate_other_label"
        text = f"has the content of {of_split} record {of_name}, label {of_label}; its own label is {label}"
        found[split].add(Finding(kind, name, text, position))
    return found


def _about(
    tasks: Sequence[ShardTask], parts: Sequence[ShardResult], wanted: set[int]
) -> dict[int, tuple[SplitName, str, int, int]]:
    """Return split, name, label and position of the samples at some places in the parts put together."""
    by_number = {(task.split, task.number): task for task in tasks}
    about: dict[int, tuple[SplitName, str, int, int]] = {}
    start = 0
    for part in parts:
        here = sorted(place for place in wanted if start <= place < start + len(part.kept))
        task = by_number[part.split, part.task_number]
        in_task = {position: i for i, position in enumerate(task.positions.tolist())} if here else {}
        for place in here:
            position = part.kept[place - start]
            i = in_task[position]
            about[place] = (part.split, task.names[i], int(task.labels[i]), position)
        start += len(part.kept)
    return about


def find_thin_classes(label_histogram: npt.NDArray[np.int64], class_names: Sequence[str]) -> Findings:
    """Return the classes of the training set without a sample, and those with one.

    Args:
        label_histogram: (n_classes,) training samples of each label.
        class_names: In label order, may be empty.
    """
    found = Findings()
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
