"""The objects below a folder, listed once a minute at most: a million objects take a thousand requests."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from deepspark_ops.stores.store import Entry
from deepspark_ops.stores.store_path import StorePath

_GOOD_FOR_S: Final = 60


def objects_below(folder: StorePath) -> Mapping[str, Entry]:
    """Return path below the folder -> object, sorted; the listing is at most a minute old.

    Raises:
        OSError: The store does not answer, or the folder does not exist.
    """
    return _listed(folder, int(time.monotonic() // _GOOD_FOR_S))


@lru_cache(maxsize=8)
def _listed(folder: StorePath, _minute: int) -> Mapping[str, Entry]:
    return folder.entries(is_deep=True)
