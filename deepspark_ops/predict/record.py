"""One input of whatever kind, and a stream of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from deepspark_ops.stores.store_path import DataPath

Values = npt.NDArray[Any]
Content = DataPath | bytes | Values
"""An image's file, a compressed image, or values: pixels (C, H, W), BGR, or the numbers of a sample (n,)."""


@dataclass(frozen=True)
class InputRecord:
    """One input.

    Attributes:
        id: What names it in the output: path, id of a table, or number.
        content: What is there, by the name of the bundle's input where it takes several; None if it could not be read.
        error: Why it could not; empty otherwise.
        is_stored: The content is a sample of an ingested dataset: what ingestion does to images is done.
    """

    id: str
    content: Content | Mapping[str, Content | None] | None
    error: str = ""
    is_stored: bool = False


class Read(Protocol):
    """Reads records, or a part of them."""

    def __call__(self, start: int = 0, stop: int | None = None) -> Iterator[InputRecord]:
        """Return the records from number ``start`` to before ``stop``, in their order."""


@dataclass(frozen=True)
class Inputs:
    """All inputs.

    Attributes:
        what: What they are, in words, for messages.
        count: Returns how many there are; None where only reading them all would tell.
        read: Returns them in their order, or those from a number to before another. Nothing is held that grows with
            their number, but for formats of ``deepspark_ops/ingest/sources/``, which list labels and names beforehand.
        remarks: What differs from the data that the net was trained on, for people.
    """

    what: str
    count: Callable[[], int | None]
    read: Read
    remarks: tuple[str, ...] = ()

    @cached_property
    def n_records(self) -> int | None:
        """How many there are, counted once."""
        return self.count()


def vector_of(numbers: Any) -> npt.NDArray[np.float32]:
    """Return numbers as a fresh float32 vector."""
    return np.array(numbers, np.float32).reshape(-1)
