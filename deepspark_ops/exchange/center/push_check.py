"""Detects nonsense pushes: numbers that are not finite, or far longer than all earlier pushes of the run.

A member of the run may be broken (a diverged net, a faulty host) or lie; a nonsense push would reach every worker
through the center. The length is the mean square of the checked numbers: one pass over numbers in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Container

import numpy as np

from deepspark_ops.errors import PushRefused
from deepspark_ops.param_vector import Vector

FACTOR = 1e6
"""A push is refused if its root mean square is more than this many times the largest of earlier chunks. Rates that warm
up or restart, layers that wake up and gradients that explode stay orders of magnitude below."""
WARM_UP_EXCHANGES = 32
"""Number of first exchanges with any finite length. Pushes of zeros do not count."""
MEMORY_LOOK = 512
"""Number of checked floats of a chunk in shared memory; each exchange checks the next floats."""
MEMORY_WARM_UP = 256
"""Replaces ``WARM_UP_EXCHANGES`` in shared memory: all floats of a chunk were checked, in layers that move little."""
MEMORY_TURNS = 16
"""In shared memory, every exchange checks its first chunk, and one of this many exchanges checks a further chunk, in
turn. Checking all chunks would slow an exchange. A worker ends before a push if its loss is not finite. A net with
non-finite numbers makes almost all numbers non-finite: the first chunk shows them."""


class PushCheck:
    """Checks the pushes of one process: of all workers by socket at a server, or of a worker in shared memory.

    Threads may check at the same time: lost or double counts do no harm.
    """

    def __init__(self, n_chunks: int, *, samples: bool = False) -> None:
        """Start without earlier pushes.

        Args:
            n_chunks: Number of chunks of the vector.
            samples: Look at ``MEMORY_LOOK`` floats of a chunk or two.
        """
        self._n_chunks = n_chunks
        self._samples = samples
        self._missing = MEMORY_WARM_UP if samples else WARM_UP_EXCHANGES * n_chunks
        self._largest = 0.0

    def positions(self, turn: int, first: int) -> Container[int]:
        """Return the chunks to check in exchange number ``turn``, with first chunk ``first``."""
        if not self._samples:
            return range(self._n_chunks)
        number, phase = divmod(turn, MEMORY_TURNS)
        return (first,) if phase else (first, number % self._n_chunks)

    def look(self, push: Vector, turn: int) -> None:
        """Check a chunk of a push, shape (chunk,), before it is applied.

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
        mean = float(np.vdot(part, part)) / len(part)  # unlike dot, vdot does not warn of large numbers
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
