"""64-bit hashes of many rows at once: a row's side and its place depend on what is in it, not on who read it when.

Equal rows have equal hashes on every machine. Two different ones agree by chance only (about 1 in 2^60), which is
enough to tell rows apart, and no protection against somebody who looks for a pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_BLOCK_WORDS = 2**18


def mixed(values: Hashes, salt: int = 0) -> Hashes:
    """Return each number's hash: the generator splitmix64 (Steele, Lea, Flood 2014) at that state.

    Another salt gives another function.
    """
    with np.errstate(over="ignore"):
        state = values + _GOLDEN * np.uint64(2 * (salt % 2**62) + 1)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(state ^ (state >> np.uint64(31)), np.uint64)


def hash_rows(values: npt.NDArray[np.floating]) -> Hashes:
    """Return the (n,) hashes of rows (n, D) of float32 or float64; every NaN counts as the same."""
    words = np.ascontiguousarray(values).view(np.uint32).reshape(len(values), -1)
    factors = _factors(words.shape[1])
    hashes = np.empty(len(words), np.uint64)
    rows = max(1, _BLOCK_WORDS // max(1, words.shape[1]))
    for start in range(0, len(words), rows):
        block = words[start : start + rows].copy()
        if (is_nan := np.isnan(values[start : start + rows])).any():
            block.reshape(*is_nan.shape, -1)[is_nan] = 0x7FC00000
        # Floats of few digits differ in their upper bits alone; this spreads each word before it is weighted.
        block ^= block >> np.uint32(16)
        block *= np.uint32(0x85EBCA6B)
        block ^= block >> np.uint32(13)
        hashes[start : start + rows] = block.astype(np.uint64) @ factors
    return mixed(hashes)


def hash_texts(offsets: npt.NDArray[np.integer], content: npt.NDArray[np.uint8]) -> Hashes:
    """Return the (n,) hashes of texts.

    Args:
        offsets: (n + 1,) where each text begins in ``content``; the last is the end.
        content: The texts' bytes, one after the other.
    """
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets).astype(np.int64)
    hashes = np.zeros(len(starts), np.uint64)
    if is_there := bool(lengths.any()):
        used = content[int(starts[0]) : int(offsets[-1])].astype(np.uint64) + np.uint64(1)
        byte_positions = np.arange(len(used)) - np.repeat(starts - starts[0], lengths)
        weighted = used * _factors(int(lengths.max()))[byte_positions]
        held = lengths > 0
        hashes[held] = np.add.reduceat(weighted, (starts - starts[0])[held]) if is_there else 0
    return mixed(hashes ^ mixed(lengths.astype(np.uint64)))


def name_hashes(names: Sequence[str], *, salt: bytes) -> Hashes:
    """Return the (n,) hashes of the names of images: BLAKE2b of eight bytes, keyed with ``salt``."""
    joined = b"".join(
        blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8, key=salt).digest() for name in names
    )
    return np.frombuffer(joined, ">u8").astype(np.uint64)


def combined(*parts: Hashes) -> Hashes:
    """Return one hash of several of each row; their order counts."""
    hashes = np.zeros_like(parts[0])
    for part in parts:
        hashes = mixed(hashes ^ part, 1)
    return hashes


def _factors(n: int) -> Hashes:
    return mixed(np.arange(n, dtype=np.uint64), 2) | np.uint64(1)


def numbered(hashes: Hashes, order: npt.NDArray[np.integer[Any]]) -> Hashes:
    """Return (n,) hashes that no two have in common: equal ones are numbered, the lowest ``order`` first.

    Example:
        >>> found = numbered(np.array([7, 5, 7], np.uint64), np.array([1, 0, 0]))
        >>> bool((found == numbered(np.array([7, 7, 5], np.uint64), np.array([4, 3, 3]))[[0, 2, 1]]).all())
        True
    """
    return mixed(hashes ^ mixed(repeats(hashes, np.lexsort((order, hashes))).astype(np.uint64), 1))


def repeats(values: npt.NDArray[Any], ascending: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int32]:
    """Return the (n,) number of earlier occurrences of each value: 0 for the first.

    Args:
        values: (n,).
        ascending: Positions in an order in which equal values are together; default: as they stand.

    Example:
        >>> repeats(np.array([4, 7, 4, 4])).tolist()
        [0, 0, 1, 2]
    """
    order = np.argsort(values, kind="stable") if ascending is None else ascending
    is_new = np.append(True, values[order][1:] != values[order][:-1])[: len(order)]
    indexes = np.arange(len(order))
    counts = np.empty(len(order), np.int32)
    counts[order] = indexes - np.maximum.accumulate(np.where(is_new, indexes, 0))
    return counts
