"""The interfaces of a source of any format: the driver's index and the tasks' reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from caffe_import.files.datum import Image
from deepspark_ops.errors import DataError, DeepSparkError
from deepspark_ops.ingest.findings import Findings
from deepspark_ops.stores.store_path import DataPath

Positions = npt.NDArray[np.int64]
"""Positions of records in their source, counted from 0."""
ReadRecord = Callable[[int], Image | bytes]
"""Returns record ``i``: pixels (C, H, W) uint8 or float32, or a compressed image. Raises RecordError."""
MAX_LABEL = 2**31 - 1
"""A Datum's label is an int32."""


class RecordError(DeepSparkError):
    """One record that cannot be used; ``str(error)`` is the reason for rejected.jsonl."""


@dataclass(frozen=True)
class Rejection:
    """A record left out.

    Attributes:
        position: In its source, counted from 0; for a line that is no record, the line's number less one.
        name: The path in the list, or the record's number.
        label: Of the source; None where it has none.
        reason: Finding and, if known, remedy.
    """

    position: int
    name: str
    label: int | None
    reason: str


class RecordReader(Protocol):
    """Reads records of a source by number. Small and picklable: it travels inside a task."""

    def subset(self, positions: Positions) -> RecordReader:
        """Return a reader whose record ``i`` is this one's ``positions[i]``; it knows of no other record."""
        ...

    def opened(self) -> AbstractContextManager[ReadRecord]:
        """Open the files for the length of a ``with`` block."""
        ...


@dataclass(frozen=True)
class LocatedRecords:
    """The records of a reader by their locations in files, see ``RecordReader``.

    Attributes:
        locations: (n,) or (n, k) int64, the location of each record.
    """

    locations: Positions

    def subset(self, positions: Positions) -> Self:
        """See ``RecordReader``."""
        return replace(self, locations=self.locations[positions])


@dataclass(frozen=True)
class SourceIndex:
    """A source as the driver sees it: names and labels of its records, no pixels.

    Attributes:
        labels: (n_records,) int64, of the source.
        names: One per record; becomes part of the sample's key.
        reader: Reads the records' content.
        decode_color: How a compressed record is decoded if ``gray`` is not asked for: True as BGR, None as it is.
        rejected: Entries that are no records at all (lines without a label).
        class_names: If the source itself names its classes.
        are_names: The source gives names as labels: its labels are places in its own ``class_names``; another source of
            the same dataset, or a list of names, may order them otherwise.
        findings: What is odd about the source, though its records can be used.
        splits: What ``split_column`` holds of each record; empty where it is not asked for, or there are no columns.
        groups: What ``group_column`` holds of each record, likewise: records of one group stay in one split.
    """

    labels: npt.NDArray[np.int64]
    names: Sequence[str]
    reader: RecordReader
    decode_color: bool | None = None
    rejected: tuple[Rejection, ...] = ()
    class_names: tuple[str, ...] = ()
    are_names: bool = False
    findings: Findings = field(default_factory=Findings)
    splits: Sequence[str] = ()
    groups: Sequence[str] = ()


def rows_of_files(files: Sequence[DataPath], counts: Sequence[int]) -> tuple[list[str], Positions]:
    """Return the names of all rows of several files, and (n, 2) int64: number of the file and row of each."""
    names = [f"{file.stem}_{row}" for file, count in zip(files, counts, strict=True) for row in range(count)]
    rows = [np.arange(count) for count in counts]
    return names, np.stack([np.repeat(np.arange(len(files)), counts), np.concatenate(rows)], axis=1)


def sorted_classes(names: Iterable[str]) -> tuple[str, ...]:
    """Return each name once, in the order of their labels: as text, or by value if all are whole numbers.

    Example:
        >>> sorted_classes(["dog", "cat", "dog"]), sorted_classes(["10", "9"])
        (('cat', 'dog'), ('9', '10'))

    Raises:
        DataError: A name is no UTF-8 text.
    """
    unique_names = sorted(set(names))
    require_utf8(unique_names)
    return tuple(sorted(unique_names, key=int) if all(name.isdecimal() for name in unique_names) else unique_names)


def require_utf8(class_names: Iterable[str]) -> None:
    """Refuse names of classes that no manifest can hold: names of folders, or lines, in another encoding.

    Raises:
        DataError: A name is no UTF-8 text.
    """
    for name in class_names:
        try:
            name.encode("utf-8")
        except UnicodeEncodeError as error:
            shown = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
            msg = f"the name of class {shown} is no UTF-8 text; allowed: UTF-8, so rename the folder or save the list"
            raise DataError(msg) from error


def labels_of(texts: Sequence[str], names: Sequence[str]) -> list[int]:
    """Return the place of each text in ``names``; -1 for one that is not among them."""
    labels = {name: label for label, name in enumerate(names)}
    return [labels.get(text, -1) for text in texts]


def with_classes(index: SourceIndex, names: Sequence[str]) -> SourceIndex:
    """Return an index whose labels are places in ``names``; of a source that gives numbers, the same index.

    A record whose class is not among them gets the label -1.
    """
    if not index.are_names or tuple(names) == index.class_names:
        return index
    labels = np.array(labels_of(index.class_names, names), np.int64)
    return replace(index, labels=labels[index.labels])
