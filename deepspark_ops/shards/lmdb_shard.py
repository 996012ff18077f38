"""Writing one LMDB shard of Datum records, as ``convert_imageset`` does, with the same bytes every time."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import lmdb

from deepspark_ops.errors import DataError
from deepspark_ops.run_paths import sync_file, sync_folder
from deepspark_ops.shards.full_disk import write_trouble

MAX_SHARD_BYTES = 2**31 - 2**20
"""Also the map size in the file's header, so it must not depend on the content: below 2 GiB, whole pages."""
_MAX_KEY_BYTES = 511
_COMMIT_BYTES = 2**20
"""Written pages are kept in memory until a commit; the next ones find that memory warm, which halves the cost of larger
amounts. Committing by amount written keeps the bytes reproducible."""


def sample_key(position: int, name: str) -> bytes:
    """Return ``convert_imageset``'s key, ``00000017_dir/cat.jpg``; a long name loses its beginning (LMDB: 511 bytes).

    Example:
        >>> sample_key(17, "dir/cat.jpg")
        b'00000017_dir/cat.jpg'
    """
    prefix = b"%08d_" % position
    return prefix + name.encode("utf-8", "surrogateescape")[-(_MAX_KEY_BYTES - len(prefix)) :]


def write_lmdb_shard(path: Path, records: Iterable[tuple[bytes, bytes | memoryview]]) -> int:
    """Write an LMDB folder whole or not at all, replacing an older one.

    Args:
        path: The shard's folder.
        records: ``(key, serialized Datum)`` with ascending keys; a Datum may be overwritten once the next is asked for.

    Returns:
        How many records were written. For none, there is nothing at ``path`` afterwards.

    Raises:
        DataError: The shard would reach 2 GiB, or the disk is full.
        ValueError: Keys are not ascending.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"))
    try:
        n_records = _fill(temporary, path, records)
        shutil.rmtree(path, ignore_errors=True)
        if n_records:
            data = temporary / "data.mdb"
            data.chmod(0o644)
            sync_file(data)
            temporary.chmod(0o755)
            sync_folder(temporary)
            temporary.rename(path)
            sync_folder(path.parent)
        return n_records
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _fill(folder: Path, path: Path, records: Iterable[tuple[bytes, bytes | memoryview]]) -> int:
    # No lock file: no other process knows the folder. No sync at commits: one at the end is enough for a file that
    # becomes visible only by its rename.
    in_order = _InOrder(path, records)
    try:
        with lmdb.open(str(folder), map_size=MAX_SHARD_BYTES, lock=False, sync=False, writemap=False) as environment:
            while not in_order.is_at_end:
                with environment.begin(write=True) as transaction:
                    # One call for all records of a commit: the cursor stays where the next one belongs.
                    transaction.cursor().putmulti(in_order.up_to(_COMMIT_BYTES), overwrite=False, append=True)
    except lmdb.MapFullError as error:
        msg = f"{path}: the shard reaches 2 GiB at sample {in_order.count - 1:,}; lower samples_per_shard below that"
        raise DataError(msg) from error
    except lmdb.Error as error:
        raise DataError(write_trouble(path, error)) from error
    return in_order.count


class _InOrder:
    """Passes records on, some bytes of them at a time; counts them and looks at their keys."""

    def __init__(self, path: Path, records: Iterable[tuple[bytes, bytes | memoryview]]) -> None:
        self._path = path
        self._records = iter(records)
        self._last_key = b""
        self.count = 0
        self.is_at_end = False

    def up_to(self, n_bytes: int) -> Iterator[tuple[bytes, bytes | memoryview]]:
        """Yield records until they have ``n_bytes``, or the last one."""
        last_key, count = self._last_key, self.count
        try:
            for key, record in self._records:
                if key <= last_key:
                    msg = f"{self._path}: key {key!r} is not above the one before"
                    raise ValueError(msg)
                last_key = key
                count += 1
                n_bytes -= len(record)
                yield key, record
                if n_bytes <= 0:
                    return
            self.is_at_end = True
        finally:
            self._last_key, self.count = last_key, count
