"""One input of whatever kind, and a stream of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[Any]
Content = Path | bytes | Values
"""An image's file, a compressed image, or values: pixels (C, H, W), BGR, or the numbers of a sample (n,)."""


@dataclass(frozen=True)
class InputRecord:
    """One input.

    Attributes:
        id: What names it in the output: path, id of a table, or number.
        content: What is there; None if it could not be read.
        error: Why it could not; empty otherwise.
    """

    id: str
    content: Content | None
    error: str = ""


@dataclass(frozen=True)
class Inputs:
    """All inputs.

    Attributes:
        what: What they are, in words, for messages.
        n_records: How many there are; None where only reading them all would tell.
        read: Returns them in their order, from the first on. Nothing is held that grows with their number, but for
            formats of ``deepspark_ops/ingest/sources/``, which list labels and names beforehand.
    """

    what: str
    n_records: int | None
    read: Callable[[], Iterator[InputRecord]]


def vector_of(numbers: Any) -> npt.NDArray[np.float32]:
    """Return numbers as a fresh float32 vector."""
    return np.array(numbers, np.float32).reshape(-1)
