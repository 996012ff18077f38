"""The interface of records that are chosen or compared: images, known by an index, and rows, known by hashes."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from deepspark_ops.ingest.records import Positions
from deepspark_ops.ingest.selection.row_hash import Hashes


class About(NamedTuple):
    """One record, for a message.

    Attributes:
        name: What a message calls it.
        label: A class number, or the labels of a row.
        position: In its source; None where nobody knows.
    """

    name: str
    label: Any
    position: int | None


class Comparable(Protocol):
    """Records of one split whose contents can be compared."""

    def __len__(self) -> int:
        """Return how many there are."""
        ...

    def contents(self) -> tuple[Hashes, npt.NDArray[np.bool_]]:
        """Return the (n,) hashes of the contents, and (n,) flags: False where a content is unknown."""
        ...

    def about(self, index: int) -> About:
        """Return what a message says of a record."""
        ...

    def same_text(self, of_split: str, of: About, record: About) -> str:
        """Return what a message says of a record, ``record``, that has the content of an earlier one."""
        ...


class Choosable(Comparable, Protocol):
    """Records of one split, or of a source; a choice takes some of the records."""

    unit: ClassVar[str]
    owner: ClassVar[str]
    """What decides on which side of the split a record is."""

    def class_numbers(self) -> Positions:
        """Return the (n,) labels, where they are classes."""
        ...

    def hashes(self, purpose: str, seed: int) -> Hashes:
        """Return (n,) hashes of the names that are independent of those of the split, or of another ``purpose``."""
        ...

    def order(self) -> Positions:
        """Return the places in an order that does not depend on who read which record when."""
        ...

    def stored_order(self, *, shuffle: bool, seed: int) -> Positions:
        """Return the places in the order of the stored samples, the same in every run."""
        ...

    def ties(self) -> tuple[Hashes, ...]:
        """Return (n,) keys that order records of equal content, the most important key first; none: keep the order."""
        ...

    def selected(self, indexes: Positions) -> Self:
        """Return some records by their places, ascending, maybe several times."""
        ...


RecordsOfSplit = TypeVar("RecordsOfSplit", bound=Choosable)
