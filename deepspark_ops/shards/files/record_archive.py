"""Files beside shards with the origin of the rows: NumPy archives (``.npz``) with a format version."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from caffe_import.file_access.regular_file import regular_path
from deepspark_ops.errors import DataError
from deepspark_ops.run_paths import write_whole
from deepspark_ops.stores.staging import local_copy
from deepspark_ops.stores.store_path import DataPath


def write_archive(path: DataPath, version: int, arrays: Mapping[str, Any]) -> None:
    """Write arrays and ``format_version`` whole; equal arrays give equal bytes.

    Raises:
        OSError: The file cannot be written.
    """
    with write_whole(path) as temporary, temporary.open("wb") as handle:
        np.savez(handle, format_version=np.int64(version), **arrays)


@contextmanager
def opened_archive(path: DataPath, readable_version: int) -> Iterator[Mapping[str, Any]]:
    """Yield the arrays of a file of ``write_archive``; an error has the path.

    Args:
        path: The file; a file in a store is fetched.
        readable_version: The only version that is read.

    Raises:
        DataError: The file is missing, damaged, of another version, or holds objects of Python.
    """
    try:
        with local_copy(path) as local, np.load(regular_path(local), allow_pickle=False) as held:
            version = int(held["format_version"])
            if version != readable_version:
                msg = (
                    f"{path}: format_version is {version}, this program reads {readable_version}; run"
                    ' "deepspark ingest" again'
                )
                raise DataError(msg)
            yield held
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        msg = f'{path}: not the records of a shard: {error}; run "deepspark ingest" again'
        raise DataError(msg) from error
