"""Which record goes where: train or test, in which order, into which shard. Pure, and the same in every run."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from deepspark_ops.ingest.records import Positions


def split_off_test(
    labels: npt.NDArray[np.int64], names: Sequence[str], *, fraction: float, seed: int
) -> npt.NDArray[np.bool_]:
    """Return which records form the test set: of each label the same share, rounded to the nearest number.

    Records are ranked within their label by a hash of (seed, name), so neither the order of the source nor the
    machine matters, and most records stay on their side when others are added.

    Args:
        labels: (n,) class of each record.
        names: One per record.
        fraction: Share of each label, 0 <= fraction < 1.
        seed: Another seed, another choice.

    Returns:
        (n,) bool, True for test.

    Example:
        >>> labels = np.repeat([0, 1], [10, 5])
        >>> chosen = split_off_test(labels, [str(i) for i in range(15)], fraction=0.2, seed=1)
        >>> np.bincount(labels[chosen]).tolist()
        [2, 1]
    """
    is_test = np.zeros(len(labels), bool)
    if fraction <= 0.0:
        return is_test
    salt = str(seed).encode()
    ranks = np.array(
        [
            int.from_bytes(blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8, key=salt).digest(), "big")
            for name in names
        ],
        np.uint64,
    )
    # The position decides between equal names: a sample listed twice.
    order = np.lexsort((np.arange(len(labels)), ranks, labels))
    sorted_labels = labels[order]
    starts = np.flatnonzero(np.diff(sorted_labels, prepend=sorted_labels[:1] - 1)).tolist()
    for start, stop in zip(starts, [*starts[1:], len(labels)], strict=bool(len(labels))):
        n_test = int((stop - start) * fraction + 0.5)
        is_test[order[start : start + n_test]] = True
    return is_test


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
