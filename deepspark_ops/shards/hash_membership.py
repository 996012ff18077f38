"""Membership in a list of 64-bit hashes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def are_in(
    hashes: npt.NDArray[np.uint64], listed: npt.NDArray[np.uint64], *, is_unique: bool = False
) -> npt.NDArray[np.bool_]:
    """Return for each of n hashes (n,) whether the list has the hash.

    The kind "table" of ``numpy.isin``, which numpy may choose, overflows for uint64 in numpy 2.0.

    Args:
        hashes: Hashes to look for.
        listed: The list.
        is_unique: Whether each of both arrays has a hash at most once, which saves time.
    """
    return np.isin(hashes, listed, assume_unique=is_unique, kind="sort")
