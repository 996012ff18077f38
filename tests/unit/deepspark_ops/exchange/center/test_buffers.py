from __future__ import annotations

import numpy as np

from deepspark_ops.exchange.center.buffers import BlobPool, VectorPool, aligned_vector


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


def test_each_blob_is_aligned_and_no_other_blob_has_its_memory() -> None:
    sizes = [1, 16, 17, 0, 5]
    pool = BlobPool(sizes)
    blobs = pool.take()
    assert [(blob.size, address(blob) % 64) for blob in blobs if blob.size] == [(size, 0) for size in sizes if size]
    for number, blob in enumerate(blobs):
        blob[:] = number
    assert [blob.tolist() for blob in blobs] == [[float(number)] * size for number, size in enumerate(sizes)]
    where, view = address(blobs[0]), blobs[4]
    del blobs, blob
    assert address(pool.take()[0]) != where, "a blob is alive"
    del view
    assert address(pool.take()[0]) == where


def test_more_vectors_than_are_kept_are_still_separate() -> None:
    pool = VectorPool(10)
    held = [pool.take() for _ in range(8)]
    for i, vector in enumerate(held):
        vector[:] = i
    assert [float(v[0]) for v in held] == list(range(8))
