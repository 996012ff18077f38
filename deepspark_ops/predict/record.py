"""An input of any kind, and a stream of inputs."""

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
"""Path of an image, a compressed image, or values: pixels (C, H, W), BGR, or the numbers of a sample (n,)."""


@dataclass(frozen=True)
class InputRecord:
    """One input.

    Attributes:
        id: Name of the input in the output: path, id of a table, or number.
        content: Content, for a bundle with several inputs by the name of the input; None after a failed reading.
        error: Reason of the failed reading; empty otherwise.
        is_stored: Whether the content is a sample of an ingested dataset, with the steps of ingestion done.
    """

    id: str
    content: Content | Mapping[str, Content | None] | None
    error: str = ""
    is_stored: bool = False


class Read(Protocol):
    """Reads all records, or a part."""

    def __call__(self, start: int = 0, stop: int | None = None) -> Iterator[InputRecord]:
        """Return the records ``[start, stop)``, in order."""


@dataclass(frozen=True)
class Inputs:
    """All inputs.

    Attributes:
        description: Kind of the inputs, in words, for messages.
        count: Returns the number of inputs; None if only reading all inputs would tell.
        read: Returns the inputs in order. Memory does not grow with the number of inputs, except for formats of
            ``deepspark_ops/ingest/sources/``, which list labels and names beforehand.
        remarks: Differences from the training data, for people.
    """

    description: str
    count: Callable[[], int | None]
    read: Read
    remarks: tuple[str, ...] = ()

    @cached_property
    def n_records(self) -> int | None:
        """Number of inputs, counted once."""
        return self.count()


def vector_of(numbers: Any) -> npt.NDArray[np.float32]:
    """Return numbers as a fresh float32 vector."""
    return np.array(numbers, np.float32).reshape(-1)
