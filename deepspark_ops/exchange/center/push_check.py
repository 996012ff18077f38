"""Which pushes are nonsense: numbers that are not finite, or far longer than anything the run has seen.

A member of the run may be broken (a diverged net, a faulty host) or lie; one such push would reach every worker by the
center. The length is measured by the mean square of what is looked at: one pass over numbers that are in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Container

import numpy as np

from deepspark_ops.errors import PushRefused
from deepspark_ops.param_vector import Vector

FACTOR = 1e6
"""A push is refused whose root mean square is so many times the largest of any chunk that was taken before. Rates that
warm up or restart, layers that wake up and gradients that explode stay orders of magnitude below it."""
WARM_UP_EXCHANGES = 32
"""Exchanges whose pushes are taken whatever their length, as long as it is finite. Pushes of zeros do not count."""
MEMORY_LOOK = 512
"""Floats that are looked at in a chunk in shared memory, at every exchange the next ones."""
MEMORY_WARM_UP = 256
"""In place of ``WARM_UP_EXCHANGES`` in shared memory: until all of a chunk was seen, with layers that move little."""
MEMORY_TURNS = 16
"""In shared memory the first chunk of every exchange is looked at, and once in so many exchanges another one, each
time the next. To look at all would take an exchange longer. A worker whose loss is not finite ends before it pushes,
and from a net that is not finite hardly a number is: the first chunk tells."""


class PushCheck:
    """Looks at the pushes of one process: of all workers by socket at a server, or of a worker in shared memory.

    Threads may look at the same time: what one counts too little or too much does not matter.
    """

    def __init__(self, n_chunks: int, *, samples: bool = False) -> None:
        """Know of no push yet.

        Args:
            n_chunks: Of the vector.
            samples: Look at ``MEMORY_LOOK`` floats of a chunk or two.
        """
        self._n_chunks = n_chunks
        self._samples = samples
        self._missing = MEMORY_WARM_UP if samples else WARM_UP_EXCHANGES * n_chunks
        self._largest = 0.0

    def positions(self, turn: int, first: int) -> Container[int]:
        """Return which chunks are to be looked at in exchange number ``turn``, which begins with chunk ``first``."""
        if not self._samples:
            return range(self._n_chunks)
        number, phase = divmod(turn, MEMORY_TURNS)
        return (first,) if phase else (first, number % self._n_chunks)

    def look(self, push: Vector, turn: int) -> None:
        """Look at one chunk of a push, shape (chunk,), before it is applied.

        Args:
            push: The chunk.
            turn: Number of the exchange; says which part is looked at.

        Raises:
            PushRefused: It is nonsense; the message says why.
        """
        part = push
        if self._samples and len(push) > MEMORY_LOOK:
            begin = turn * MEMORY_LOOK % len(push)
            part = push[begin : begin + MEMORY_LOOK]
        mean = float(np.vdot(part, part)) / len(part)  # unlike dot it does not warn of what is too large
        if not mean <= self._largest:
            self._take_longer(mean)
        if self._missing > 0 and mean:
            self._missing -= 1

    def _take_longer(self, mean: float) -> None:
        if not math.isfinite(mean):
            msg = "it holds numbers that are not finite, or too large to be squared"
            raise PushRefused(msg)
        if self._missing <= 0 and mean > FACTOR**2 * self._largest:
            msg = (
                f"its numbers are {math.sqrt(mean):.3g} in root mean square, and never were above"
                f" {math.sqrt(self._largest):.3g} in this run; allowed: {FACTOR:g} times that (check_pushes=false"
                " takes any)"
            )
            raise PushRefused(msg)
        self._largest = mean
