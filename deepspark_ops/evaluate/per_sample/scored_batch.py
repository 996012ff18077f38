"""Samples scored together, with the answers and errors of each result of the net."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deepspark_ops.evaluate.scores import SampleLosses

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ScoredResult:
    """A result of the net on some samples.

    Attributes:
        answers: Of each output of the result (n, ...), after its activation.
        targets: (n, ...), what they should be.
        losses: Errors of samples that count, those of these samples among them; None before there is one.
    """

    answers: Sequence[Array]
    targets: Array
    losses: SampleLosses | None


@dataclass(frozen=True)
class ScoredBatch:
    """Consecutive scored samples.

    Attributes:
        start: Position of the first.
        content: (n,), hashes of the samples' stored values.
        results: Of each result of the net, the main one first.
    """

    start: int
    content: npt.NDArray[np.uint64]
    results: Sequence[ScoredResult]
