"""Writing one LMDB shard of Datum records, as ``convert_imageset`` does, with the same bytes every time."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import lmdb

from deepspark_ops.errors import DataError
from deepspark_ops.run_paths import sync_file, sync_folder
from deepspark_ops.shards.files.full_disk import write_trouble
from deepspark_ops.sizes import size_text

MAX_SHARD_BYTES = 2**31 - 2**20
"""Also the map size in the file's header, so it must not depend on the content: below 2 GiB, whole pages."""
_IF_SHARD_IS_FULL = "lower samples_per_shard below that, or raise shards"
_MAX_KEY_BYTES = 511
_COMMIT_BYTES = 2**20
"""Written pages are kept in memory until a commit; the next ones find that memory warm, which halves the cost of larger
amounts. Committing by amount written keeps the bytes reproducible."""


Record = tuple[bytes, bytes | memoryview]
"""(key, serialized Datum)."""


def sample_key(position: int, name: str) -> bytes:
    """Return ``convert_imageset``'s key, ``00000017_dir/cat.jpg``; a long name loses its beginning (LMDB: 511 bytes).

    Example:
        >>> sample_key(17, "dir/cat.jpg")
        b'00000017_dir/cat.jpg'
    """
    key = f"{position:08d}_{name}".encode("utf-8", "surrogateescape")
    if len(key) <= _MAX_KEY_BYTES:
        return key
    prefix = b"%08d_" % position
    return prefix + key[len(key) - _MAX_KEY_BYTES + len(prefix) :]


def write_lmdb_shard(path: Path, records: Iterable[Record]) -> int:
    """Write records one by one, as ``write_lmdb_blocks`` does."""
    return write_lmdb_blocks(path, ((record,) for record in records))


def write_lmdb_blocks(path: Path, blocks: Iterable[Sequence[Record]]) -> int:
    """Write an LMDB folder whole or not at all, replacing an older one.

    Args:
        path: The shard's folder.
        blocks: Some records at a time, with ascending keys; their Datums may be overwritten once the next block is
            asked for. How records are put into blocks does not change the file's bytes.

    Returns:
        How many records were written. For none, there is nothing at ``path`` afterwards.

    Raises:
        DataError: The shard would reach 2 GiB, or the disk is full.
        ValueError: Keys are not ascending.
    """
    with lmdb_output(path, map_size_bytes=MAX_SHARD_BYTES, if_full=_IF_SHARD_IS_FULL) as output:
        for block in blocks:
            output.put(block)
    return output.n_records


class LmdbOutput:
    """Takes records with ascending keys, and commits whenever ``_COMMIT_BYTES`` are written. Used by one thread.

    Attributes:
        n_records: Number of records that it has taken.
    """

    def __init__(self, environment: lmdb.Environment, path: Path) -> None:
        """Write into an open database; ``path`` is for messages."""
        self._environment = environment
        self._path = path
        self.n_records = 0
        self._begin()

    def put(self, block: Sequence[Record]) -> None:
        """Write a block, with a commit after each record that fills the room; its Datums may be overwritten then."""
        sizes = [len(record) for _, record in block]
        start = 0
        while self._room <= sum(sizes[start:]):
            stop = start
            while self._room > 0:
                self._room -= sizes[stop]
                stop += 1
            self._write(block[start:stop])
            self.commit()
            self._begin()
            start = stop
        if start < len(block):
            self._room -= sum(sizes[start:])
            self._write(block[start:])
        self.n_records += len(block)

    def commit(self) -> None:
        """Write all records to the file."""
        self._transaction.commit()

    def close(self) -> None:
        """Forget the records since the last commit."""
        self._transaction.abort()  # nothing after a commit

    def _begin(self) -> None:
        self._room = _COMMIT_BYTES
        self._transaction = self._environment.begin(write=True)
        self._cursor = self._transaction.cursor()
        self._last_key = b""

    def _write(self, records: Sequence[Record]) -> None:
        # One call for all of them: the cursor stays where the next one belongs. Append refuses a key that is too small.
        _, n_added = self._cursor.putmulti(records, overwrite=False, append=True)
        if n_added < len(records):
            keys = [key for key, _ in records]
            earlier_keys = [self._last_key, *keys]
            wrong = next((key for last, key in zip(earlier_keys, keys, strict=False) if key <= last), keys[0])
            msg = f"{self._path}: key {wrong!r} is not above the one before"
            raise ValueError(msg)
        self._last_key = records[-1][0]


@contextmanager
def lmdb_output(path: Path, *, map_size_bytes: int, if_full: str) -> Iterator[LmdbOutput]:
    """Open an LMDB folder for records, as ``write_lmdb_blocks`` writes them; it is there after the block.

    Args:
        path: The database's folder; an older one is replaced.
        map_size_bytes: Most that the database takes; the file's header has the number.
        if_full: What the user can do where that is reached.

    Raises:
        DataError: The database would reach its size, or the disk is full.
        ValueError: Keys are not ascending.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"))
    try:
        # No lock file: no other process knows the folder. No sync at commits: one at the end is enough for a file that
        # becomes visible only by its rename.
        with (
            lmdb.open(str(temporary), map_size=map_size_bytes, lock=False, sync=False, writemap=False) as environment,
            closing(LmdbOutput(environment, path)) as output,
        ):
            yield output
            output.commit()
        shutil.rmtree(path, ignore_errors=True)
        if output.n_records:
            data = temporary / "data.mdb"
            data.chmod(0o644)
            sync_file(data)
            temporary.chmod(0o755)
            sync_folder(temporary)
            temporary.rename(path)
            sync_folder(path.parent)
    except lmdb.MapFullError as error:
        msg = f"{path}: the shard reaches {size_text(map_size_bytes)} at sample {output.n_records:,}; {if_full}"
        raise DataError(msg) from error
    except lmdb.Error as error:
        raise DataError(write_trouble(path, error)) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
