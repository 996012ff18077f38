"""Findings about all records of a dataset together: classes with too few samples, paths with two labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from deepspark_ops.ingest.findings import Finding, Findings
from deepspark_ops.ingest.records import SourceIndex


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
