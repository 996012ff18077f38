"""Walks LMDB databases in a process of their own: LMDB trusts pages, so a damaged page may kill the process.

Run as ``python lmdb_pages.py FOLDER...``: by its path, since importing the package takes longer than a walk.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from caffe_import.errors import DataSourceError
from caffe_import.file_access.regular_file import regular_path

TOUCHED_UP_TO_BYTES = 2**30
"""Of larger databases the keys are walked alone: touching every record would read most of the file."""


def check_pages(folders: Sequence[Path]) -> None:
    """Read every key of every database, and every record of small databases.

    Raises:
        DataSourceError: A database is damaged so that reading it fails or kills the process; names the first.
    """
    if not folders:
        return
    command = [sys.executable, __file__, *(str(folder) for folder in folders)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode == 0:
        return
    reached = (process.stdout.splitlines() or [str(folders[0])])[-1]
    if process.returncode < 0:
        failure = f"reading it kills the process ({signal.Signals(-process.returncode).name})"
    else:
        failure = (process.stderr.strip().splitlines() or ["no message"])[-1].removeprefix("ValueError: ")
    msg = f"{reached}: damaged LMDB: {failure}; make the database again, or copy it again"
    raise DataSourceError(msg)


def walk(folder: Path) -> None:
    """Read what ``check_pages`` says of one database.

    Raises:
        lmdb.Error: A page is damaged, and LMDB noticed.
        ValueError: Fewer bytes or records than the header says.
    """
    import lmdb

    size = regular_path(folder / "data.mdb").stat().st_size
    touches = size <= TOUCHED_UP_TO_BYTES
    n_records = 0
    with lmdb.open(str(folder), readonly=True, lock=False) as environment, environment.begin(buffers=True) as reading:
        needed = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
        if size < needed:
            msg = f"data.mdb is cut short: {size:,} bytes, its header says {needed:,}"
            raise ValueError(msg)
        for _, record in reading.cursor().iternext(keys=True, values=True):
            n_records += 1
            if touches and len(record):
                bytes(record[:: max(1, len(record) - 1)])
        expected = environment.stat()["entries"]
    if n_records != expected:
        msg = f"header says {expected:,} records, found {n_records:,}"
        raise ValueError(msg)


def main(arguments: Sequence[str]) -> None:
    """Walk the databases, naming each before it is opened."""
    for folder in arguments:
        sys.stdout.write(f"{folder}\n")
        sys.stdout.flush()
        walk(Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
