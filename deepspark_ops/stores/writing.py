"""Writing a file whole or not at all, on the local disk or as an object of a store."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from caffe_import.files.whole_file import write_whole
from deepspark_ops.stores.store_path import StorePath


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary local file; on success it becomes ``path``, else nothing does.

    Raises:
        OSError: It cannot be written.
    """
    if not isinstance(path, StorePath):
        with write_whole(path) as temporary:
            yield temporary
        return
    with tempfile.TemporaryDirectory(prefix="deepspark-") as folder:
        temporary = Path(folder) / path.name
        temporary.touch()
        yield temporary
        path.put(temporary)
