from __future__ import annotations

import numpy as np

from deepspark_ops.exchange.center.buffers import VectorPool, aligned_vector


def address(vector: np.ndarray) -> int:
    return vector.ctypes.data


def test_vectors_are_aligned_for_tensorflow() -> None:
    for n in (1, 7, 1000):
        vector = aligned_vector(n)
        assert vector.shape == (n,)
        assert address(vector) % 64 == 0


def test_memory_is_used_again_only_when_nobody_looks_at_it() -> None:
    pool = VectorPool(100)
    first = pool.take()
    part = first[10:20].reshape(2, 5)
    where = address(first)
    del first
    second = pool.take()
    assert address(second) != where, "a view of the first is alive"
    part[...] = 3.0
    del part
    third = pool.take()
    assert address(third) == where
    assert address(pool.take()) not in (address(second), address(third))


def test_more_vectors_than_are_kept_are_still_separate() -> None:
    pool = VectorPool(10)
    held = [pool.take() for _ in range(8)]
    for i, vector in enumerate(held):
        vector[:] = i
    assert [float(v[0]) for v in held] == list(range(8))
