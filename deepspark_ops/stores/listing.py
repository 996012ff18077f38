"""The objects below a folder, listed once a minute at most: a million objects take a thousand requests."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from deepspark_ops.stores.store import Entry, Store, plain_errors
from deepspark_ops.stores.store_path import StorePath

_GOOD_FOR_S: Final = 60


def objects_below(folder: StorePath) -> Mapping[str, Entry]:
    """Return path below the folder -> object, sorted; the listing is at most a minute old.

    Raises:
        OSError: The store does not answer, or the folder does not exist.
    """
    with plain_errors(str(folder)):
        store = folder.store()
    return _listed(folder, store, int(time.monotonic() // _GOOD_FOR_S))


@lru_cache(maxsize=8)
def _listed(folder: StorePath, _store: Store, _minute: int) -> Mapping[str, Entry]:
    return folder.entries(is_deep=True)
