"""The number and the bounds of the shards of a split; the same in every run."""

from __future__ import annotations

from itertools import pairwise

from deepspark_ops.errors import ConfigError

_WORTH_CUTTING = 500
_SAMPLES_FOR_A_CORE = 125
_CORES = 8


def shards_for_cores(n_samples: int) -> int:
    """Return the number of shards, and so of tasks, that images in hundreds are cut into: 4 of 500, 8 from 1,000 on.

    It does not depend on how many cores there are: the same source gives the same bytes on every machine. More would
    cost small images more than they gain: to open, sync and digest a shard takes two milliseconds.

    Example:
        >>> [shards_for_cores(n) for n in (499, 500, 800, 1000, 60_000)]
        [1, 4, 6, 8, 8]
    """
    return min(n_samples // _SAMPLES_FOR_A_CORE, _CORES) if n_samples >= _WORTH_CUTTING else 1


def least_shards(n_samples: int, most: int, configured: int | None, usual: int, *, where: str) -> int:
    """Return the least number of shards of a set: that of the option, else the usual number.

    Args:
        n_samples: Of the set.
        most: Samples that one shard has room for.
        configured: Option ``shards``.
        usual: Without the option.
        where: Names the set.

    Raises:
        ConfigError: Its samples do not fit into so few.

    Example:
        >>> least_shards(2000, 1500, 2, 8, where="train"), least_shards(2000, 1500, None, 8, where="train")
        (2, 8)
    """
    if configured is None:
        return usual
    if n_samples > configured * most:
        msg = (
            f"shards={configured}: the {where} set has {n_samples:,} samples, one shard has room for {most:,} of them;"
            f" give shards={-(-n_samples // most)} or more"
        )
        raise ConfigError(msg)
    return configured


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
