"""The objects below a folder, asked once for all who look at it within a minute: a million take a thousand requests."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from deepspark_ops.stores.store import Entry
from deepspark_ops.stores.store_path import StorePath

_GOOD_FOR_S: Final = 60


def objects_below(folder: StorePath) -> Mapping[str, Entry]:
    """Return every object by its path from the folder on, sorted; at most a minute old.

    Raises:
        OSError: The store does not say, or there is no such folder.
    """
    return _listed(folder, int(time.monotonic() // _GOOD_FOR_S))


@lru_cache(maxsize=8)
def _listed(folder: StorePath, _minute: int) -> Mapping[str, Entry]:
    return folder.entries(is_deep=True)
