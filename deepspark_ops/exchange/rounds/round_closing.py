"""The end of a round: the server moves the center by the pushes of all live workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import ProtocolError
from deepspark_ops.param_vector import Vector


class RoundNote(NamedTuple):
    """A worker's report with a push: on minibatches where workers push gradients, or a proposal of tau.

    Attributes:
        loss: Mean loss of the minibatches behind the push.
        learning_rate: Rate of the update, rate scale included.
        update: Number of the update among the worker's updates, from 1.
        is_first: Is this the first push of the process?
        comm_period: The worker's proposal of tau; 0: the others decide.
    """

    loss: float = 0.0
    learning_rate: float = 0.0
    update: int = 0
    is_first: bool = False
    comm_period: int = 0

    @classmethod
    def from_json(cls, plain: Any) -> RoundNote | None:
        """Return the note of a message, or None.

        Raises:
            ProtocolError: Not what ``list(note)`` gives.
        """
        if plain is None:
            return None
        kinds = (int | float, int | float, int, bool, int)
        if not isinstance(plain, list) or len(plain) != len(kinds) or not all(map(isinstance, plain, kinds)):
            msg = f"not the note of a round: {str(plain)[:80]}; expected {', '.join(cls._fields)}"
            raise ProtocolError(msg)
        return cls(float(plain[0]), float(plain[1]), *plain[2:])


class RoundContents(NamedTuple):
    """The vectors of a complete round. Only the closer writes them meanwhile.

    Attributes:
        center: The center, (n_params,).
        extras: The strategy's server vectors, each (n_params,); the first is the sum of pushes.
        counts: Pushes of each chunk in that sum, (n_chunks,), uint64.
        spans: Range of each chunk in the vector.
        notes: Worker -> its note; empty where the strategy's workers send none.
    """

    center: Vector
    extras: tuple[Vector, ...]
    counts: npt.NDArray[np.uint64]
    spans: Sequence[slice]
    notes: dict[int, RoundNote]

    def mean_push(self) -> Vector:
        """Return the mean of the pushes, (n_params,), fresh; 0 for chunks without a push."""
        mean = np.zeros_like(self.extras[0])
        for span, count in zip(self.spans, self.counts.tolist(), strict=True):
            if count:
                np.multiply(self.extras[0][span], np.float32(1.0 / count), out=mean[span])
        return mean

    def forget_pushes(self) -> None:
        """Clear the sum."""
        self.extras[0].fill(0.0)
        self.counts.fill(0)


class RoundCloser(Protocol):
    """Ends rounds of a run, in turn. Not thread-safe."""

    def close(self, contents: RoundContents) -> list[str]:
        """Move the center; returns notes for the user, one line each."""


class ChunkwiseCloser:
    """Ends rounds with independent chunks. A chunk without a push does not change.

    After a kill, the next call applies the chunks that still have a count; a single chunk at most is uncertain.
    """

    def __init__(self, close_chunk: Callable[[Vector, tuple[Vector, ...], int], None]) -> None:
        """Take a strategy's ``close_round``."""
        self._close_chunk = close_chunk

    def close(self, contents: RoundContents) -> list[str]:
        """See ``RoundCloser``."""
        for position, span in enumerate(contents.spans):
            n_held = int(contents.counts[position])
            if n_held:
                extras = tuple([extra[span] for extra in contents.extras])
                self._close_chunk(contents.center[span], extras, n_held)
                contents.counts[position] = 0
        return []
