"""What a dataset's digest sees of the files it was made of."""

from __future__ import annotations

import hashlib

from deepspark_ops.shards.manifest import sha256_of_file
from deepspark_ops.stores.store_path import DataPath, StorePath


def source_digest(path: DataPath) -> str:
    """Return a hexadecimal digest that changes with a file's content.

    It is that of the bytes; of an object in a store that of the store's own tag, which needs no reading.

    Raises:
        OSError: The file is not there or cannot be read.
    """
    if isinstance(path, StorePath):
        return hashlib.sha256(path.version().encode()).hexdigest()
    return sha256_of_file(path)
