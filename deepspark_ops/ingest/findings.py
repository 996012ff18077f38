"""Warnings and notes of an ingestion on usable records: all are counted, the first of a kind are named."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from deepspark_ops.run_paths import write_text_whole
from deepspark_ops.shards.class_name import class_name
from deepspark_ops.stores.store_path import DataPath

WARNINGS_NAME: Final = "warnings.jsonl"
KINDS: Final[Mapping[str, str]] = {
    "damaged_image": "images that the decoder complained about",
    "reduced_to_8_bits": "images of more than 8 bits a channel, reduced to 8",
    "alpha_dropped": "images whose transparency was dropped",
    "orientation_applied": "images turned as their EXIF data say",
    "orientation_ignored": "images not turned though their EXIF data say so",
    "duplicate": "records with the content of an earlier one",
    "duplicate_in_validation": "validation records with the content of a training record",
    "duplicate_in_test": "test records with the content of a training or validation record",
    "duplicate_other_label": "records with the content of an earlier one and another label",
    "path_with_two_labels": "paths that are listed with different labels",
    "class_without_sample": "classes below the largest label without a training sample",
    "class_with_one_sample": "classes with one training sample",
    "file_passed_by": "files in class folders that are no images by their names",
    "duplicate_left_out": "records left out, since an earlier one has their content",
    "not_in_split_list": "records left out, since the list of the splits does not name them",
    "unknown_in_split_list": "entries of the list of the splits that no record has",
    "one_label": "training sets whose samples all have one label",
    "constant_column": "columns with one value in all training rows",
    "drifted_column": "columns that have moved from the mean or deviation that they are standardised by",
    "missing_value": "missing values of a table, filled as option missing says",
}
"""Kind -> what it counts."""
NOTES: Final = frozenset(
    {"orientation_applied", "file_passed_by", "duplicate_left_out", "not_in_split_list", "missing_value"}
)
"""Kinds that nothing is wrong with: ``strict`` does not refuse them."""
NAMED_OF_A_KIND: Final = 1000
"""So many of one kind are named for each shard; all are counted."""


@dataclass(frozen=True)
class Finding:
    """One thing found.

    Attributes:
        kind: One of ``KINDS``.
        name: Of the record, path or class.
        text: What was found.
        position: Of the record in its source, counted from 0; None for what is no record.
    """

    kind: str
    name: str
    text: str
    position: int | None = None


@dataclass
class Findings:
    """Counts everything and names the first of each kind."""

    counts: Counter[str] = field(default_factory=Counter)
    named: list[Finding] = field(default_factory=list)

    def add(self, finding: Finding, count: int = 1) -> None:
        """Count a finding once, or ``count`` times for a finding that summarises several."""
        self.counts[finding.kind] += count
        if self.counts[finding.kind] <= NAMED_OF_A_KIND or count > 1:
            self.named.append(finding)

    def merge(self, other: Findings) -> None:
        """Add the findings of another part."""
        self.counts.update(other.counts)
        self.named += other.named


def ordered(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts above zero, in the order of ``KINDS``."""
    return {kind: counts[kind] for kind in KINDS if counts.get(kind)}


def summary(counts: Mapping[str, int]) -> str:
    """Return the counts in words.

    Example:
        >>> summary({"duplicate": 2, "damaged_image": 1})
        'images that the decoder complained about: 1; records with the content of an earlier one: 2'
    """
    return "; ".join(f"{KINDS[kind]}: {count:,}" for kind, count in ordered(counts).items())


def refused(counts: Mapping[str, int]) -> dict[str, int]:
    """Return what ``strict`` refuses."""
    return {kind: count for kind, count in ordered(counts).items() if kind not in NOTES}


def write_warnings(path: DataPath, named: Iterable[Finding]) -> None:
    """Write one JSON object a line, by kind, then by place in the source."""
    kinds = list(KINDS)
    rows: Sequence[Finding] = sorted(
        named, key=lambda item: (kinds.index(item.kind), -1 if item.position is None else item.position, item.name)
    )
    write_text_whole(path, "".join(json.dumps(asdict(item), ensure_ascii=True) + "\n" for item in rows))


def find_thin_classes(label_histogram: npt.NDArray[np.int64], class_names: Sequence[str]) -> Findings:
    """Return the classes of the training set without a sample, and those with one; of a single class that alone.

    ``label_histogram``, (n_classes,), has the training samples of each label; ``class_names`` may be empty.
    """
    findings = Findings()
    labels_there = np.flatnonzero(label_histogram)
    if len(labels_there) == 1:
        label = int(labels_there[0])
        name = class_name(class_names, label)
        findings.add(Finding("one_label", name, f"every training sample has label {label}; a net has nothing to learn"))
        return findings
    for label in np.flatnonzero(label_histogram < 2).tolist():
        name = class_name(class_names, label)
        count = int(label_histogram[label])
        kind = "class_with_one_sample" if count else "class_without_sample"
        findings.add(Finding(kind, name, f"label {label} has {count} training sample{'' if count else 's'}"))
    return findings
