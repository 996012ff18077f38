"""Which record goes where: train or test, in which order, into which shard. Pure, and the same in every run."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import ConfigError
from deepspark_ops.ingest.records import Positions
from deepspark_ops.shards.manifest import SPLITS

_WORTH_CUTTING = 500
_SAMPLES_FOR_A_CORE = 125
_CORES = 8


def name_hashes(names: Sequence[str], *, salt: bytes) -> npt.NDArray[np.uint64]:
    """Return a number in [0, 2^64) for each name, (n,): BLAKE2b of eight bytes, keyed with ``salt``."""
    joined = b"".join(
        blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8, key=salt).digest() for name in names
    )
    return np.frombuffer(joined, ">u8").astype(np.uint64)


def split_by_hash(names: Sequence[str], *, test: float, seed: int, validation: float = 0.0) -> npt.NDArray[np.int8]:
    """Return each record's split, a place in ``SPLITS``, by its hash of (seed, name).

    The lowest ``test`` are the test set, the ``validation`` above them the validation set, the others train.

    A record's side depends on its own name alone, so it never changes when others are added or taken away: what a
    model was trained on never becomes a test sample of a later one, and records of one name stay together. The price
    is that a label's share is a fraction f only on average: of n records, give or take sqrt(n f (1 - f)).

    Args:
        names: (n,) name of each record in its source.
        test: Expected share, 0 <= test < 1. A larger one adds to the test set of a smaller one.
        seed: Another seed, another choice.
        validation: Expected share; test + validation < 1.

    Returns:
        (n,) int8.

    Example:
        >>> [SPLITS[number] for number in split_by_hash(["a", "b", "c", "d", "a"], test=0.5, seed=4)]
        ['test', 'train', 'test', 'test', 'test']
    """
    return splits_of_hashes(name_hashes(names, salt=str(seed).encode()), test=test, validation=validation)


def splits_of_hashes(hashes: npt.NDArray[np.uint64], *, test: float, validation: float) -> npt.NDArray[np.int8]:
    """Return the (n,) splits of records by hashes in [0, 2^64): the lowest test, the validation set is above them."""
    found = np.full(len(hashes), SPLITS.index("train"), np.int8)
    found[hashes < np.uint64((test + validation) * 2**64)] = SPLITS.index("validation")
    found[hashes < np.uint64(test * 2**64)] = SPLITS.index("test")
    return found


def sample_order(positions: Positions, *, shuffle: bool, seed: int) -> Positions:
    """Return the positions in the order in which the samples are stored."""
    if not shuffle:
        return positions
    return np.random.default_rng(seed).permutation(positions)


def shards_for_cores(n_samples: int) -> int:
    """Return the number of shards, and so of tasks, that images in hundreds are cut into: 4 of 500, 8 from 1,000 on.

    It does not depend on how many cores there are: the same source gives the same bytes on every machine. More would
    cost small images more than they gain: to open, sync and digest a shard takes two milliseconds.

    Example:
        >>> [shards_for_cores(n) for n in (499, 500, 800, 1000, 60_000)]
        [1, 4, 6, 8, 8]
    """
    return min(n_samples // _SAMPLES_FOR_A_CORE, _CORES) if n_samples >= _WORTH_CUTTING else 1


def asked_shards(n_samples: int, most: int, asked: int | None, *, where: str) -> int:
    """Return how many shards a set is cut into at least: those asked for, else enough for the cores.

    Args:
        n_samples: Of the set.
        most: Samples that one shard has room for.
        asked: Option ``shards``.
        where: Names the set.

    Raises:
        ConfigError: Its samples do not fit into so few.

    Example:
        >>> asked_shards(2000, 1500, 2, where="train"), asked_shards(2000, 1500, None, where="train")
        (2, 8)
    """
    if asked is None:
        return shards_for_cores(n_samples)
    if n_samples > asked * most:
        msg = (
            f"shards={asked}: the {where} set has {n_samples:,} samples, one shard has room for {most:,} of them; give"
            f" shards={-(-n_samples // most)} or more"
        )
        raise ConfigError(msg)
    return asked


def shard_bounds(n_samples: int, max_samples: int, *, least: int = 1) -> list[tuple[int, int]]:
    """Cut ``n_samples`` into as few shards as possible, of sizes that differ by one at most; none is empty.

    Args:
        n_samples: Of all shards.
        max_samples: Of one.
        least: So many shards at least, where there are samples.

    Example:
        >>> shard_bounds(11, 5)
        [(0, 3), (3, 7), (7, 11)]
    """
    n_shards = min(max(-(-n_samples // max_samples), least), n_samples)
    bounds = [n_samples * i // n_shards for i in range(n_shards + 1)] if n_shards else []
    return list(pairwise(bounds))
