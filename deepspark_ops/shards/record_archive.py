"""Files beside shards that say where their rows came from: NumPy archives (``.npz``) that have a format version."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from caffe_import.files.regular_file import regular_path
from deepspark_ops.errors import DataError
from deepspark_ops.run_paths import write_whole
from deepspark_ops.stores.staging import local_copy
from deepspark_ops.stores.store_path import DataPath


def write_archive(path: DataPath, version: int, arrays: Mapping[str, Any]) -> None:
    """Write arrays and their ``format_version`` whole; equal ones give equal bytes.

    Raises:
        OSError: The file cannot be written.
    """
    with write_whole(path) as temporary, temporary.open("wb") as handle:
        np.savez(handle, format_version=np.int64(version), **arrays)


@contextmanager
def opened_archive(path: DataPath, versions: Sequence[int]) -> Iterator[Mapping[str, Any]]:
    """Yield what ``write_archive`` wrote; what goes wrong while it is read is told by its path.

    Args:
        path: The file; one in a store is fetched.
        versions: Those that are read.

    Raises:
        DataError: There is no such file, or it is damaged, holds Python's objects, or is of another version.
    """
    try:
        with local_copy(path) as local, np.load(regular_path(local), allow_pickle=False) as held:
            version = int(held["format_version"])
            if version not in versions:
                readable = ", ".join(map(str, versions))
                msg = f'{path}: format_version is {version}, this program reads {readable}; rerun task "ingest"'
                raise DataError(msg)
            yield held
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        msg = f'{path}: not the records of a shard: {error}; rerun task "ingest"'
        raise DataError(msg) from error
