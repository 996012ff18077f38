"""Which record goes where: train or test, in which order, into which shard. Pure, and the same in every run."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from deepspark_ops.ingest.records import Positions


def split_off_test(names: Sequence[str], *, fraction: float, seed: int) -> npt.NDArray[np.bool_]:
    """Return which records form the test set: those whose hash of (seed, name) is in the lowest ``fraction``.

    A record's side depends on its own name alone, so it never changes when others are added or taken away: what a
    model was trained on never becomes a test sample of a later one, and records of one name stay together. The price
    is that a label's share is ``fraction`` only on average: of n records, give or take sqrt(n fraction (1 - fraction)).

    Args:
        names: (n,) name of each record in its source.
        fraction: Expected share, 0 <= fraction < 1. A larger one adds to the test set of a smaller one.
        seed: Another seed, another choice.

    Returns:
        (n,) bool, True for test.

    Example:
        >>> split_off_test(["a", "b", "c", "d", "a"], fraction=0.5, seed=4).tolist()
        [True, False, True, True, True]
    """
    salt = str(seed).encode()
    bound = int(fraction * 2**64)
    hashes = (blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8, key=salt).digest() for name in names)
    return np.array([int.from_bytes(value, "big") < bound for value in hashes], bool)


def sample_order(positions: Positions, *, shuffle: bool, seed: int) -> Positions:
    """Return the positions in the order in which the samples are stored."""
    if not shuffle:
        return positions
    return np.random.default_rng(seed).permutation(positions)


def shard_bounds(n_samples: int, max_samples: int) -> list[tuple[int, int]]:
    """Cut ``n_samples`` into as few shards as possible, of sizes that differ by one at most; none is empty.

    Example:
        >>> shard_bounds(11, 5)
        [(0, 3), (3, 7), (7, 11)]
    """
    n_shards = -(-n_samples // max_samples)
    bounds = [n_samples * i // n_shards for i in range(n_shards + 1)] if n_shards else []
    return list(pairwise(bounds))
