"""Vectors for callers; a pool uses the memory of a vector again after the last reference."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from deepspark_ops.param_vector import Vector

ALIGNMENT_BYTES = 64
"""TensorFlow takes a numpy vector without a copy only at this alignment."""
KEPT_VECTORS = 5
"""The loop's present vector, the one being written, and one that a tensor may still hold; two centers, where they are
reported."""


def aligned_vector(n_floats: int) -> Vector:
    """Return an uninitialised float32 vector, shape (n_floats,), at a 64-byte boundary."""
    owner = _with_spare(n_floats)
    return owner[_aligned_span(owner, n_floats)]


class VectorPool:
    """Returns vectors of the same length. Not thread-safe.

    A fresh vector of 61 million floats costs 60,000 page faults, more than filling the vector in an exchange. The pool
    uses memory again only if the reference count shows that no vector, view or tensor over the memory is alive.
    """

    def __init__(self, n_floats: int) -> None:
        """Allocate nothing yet."""
        self._n_floats = n_floats
        self._owners: list[Vector] = []
        self._spans: list[slice] = []

    def take(self) -> Vector:
        """Return a vector with arbitrary content and no other reference, at a 64-byte boundary."""
        owners = self._owners
        for i in range(len(owners)):
            # Two references: the list's and getrefcount's argument. Every view refers to its owner.
            if sys.getrefcount(owners[i]) == 2:
                return owners[i][self._spans[i]]
        owner = _with_spare(self._n_floats)
        span = _aligned_span(owner, self._n_floats)
        if len(owners) < KEPT_VECTORS:
            owners.append(owner)
            self._spans.append(span)
        return owner[span]


class BlobPool:
    """Returns the blobs of a vector, each at a 64-byte boundary. Not thread-safe."""

    def __init__(self, sizes: Sequence[int]) -> None:
        """Allocate nothing yet; ``sizes`` are the blobs' in floats."""
        steps = [-(-4 * size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES // 4 for size in sizes]
        starts = [0, *accumulate(steps)]
        self._spans = [slice(start, start + size) for start, size in zip(starts, sizes, strict=False)]
        self._vectors = VectorPool(starts[-1])

    def take(self) -> list[Vector]:
        """Return blobs with arbitrary content and no other reference."""
        vector = self._vectors.take()
        return [vector[span] for span in self._spans]


def _with_spare(n_floats: int) -> Vector:
    return np.empty(n_floats + ALIGNMENT_BYTES // 4, np.float32)


def _aligned_span(owner: Vector, n_floats: int) -> slice:
    first = (-owner.ctypes.data % ALIGNMENT_BYTES) // 4
    return slice(first, first + n_floats)
