"""The records of an LMDB, read by the package lmdb alone."""

from __future__ import annotations

from pathlib import Path

import lmdb


def lmdb_records(folder: Path) -> dict[bytes, bytes]:
    """Return key -> value in the order of the database."""
    with lmdb.open(str(folder), readonly=True, lock=False) as environment, environment.begin() as transaction:
        return dict(transaction.cursor())
