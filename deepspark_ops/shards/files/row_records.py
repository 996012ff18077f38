"""Facts of each row of a table's shard, in a file beside the shard: a later ingestion finds the changed rows.

Format version 1: a NumPy archive (``.npz``) without pickled objects; ``format_version`` is an array. ``names``
is absent if equal to ``states``, ``repeats`` if all are 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from deepspark_ops.shards.files.record_archive import opened_archive, write_archive
from deepspark_ops.stores.store_path import DataPath

ROWS_VERSION: Final = 1


@dataclass(frozen=True)
class RowRecords:
    """The rows of a shard, in order, (n,) each.

    Attributes:
        names: Hash of the row's id; for a table without ids the hash of the whole row.
        states: Hash of all stored values of the row.
        repeats: Number of earlier copies of the row by balancing; 0 for the first.
    """

    names: npt.NDArray[np.uint64]
    states: npt.NDArray[np.uint64]
    repeats: npt.NDArray[np.int32]


def rows_path(shard: DataPath) -> DataPath:
    """Return the path of the records of a table's shard.

    Example:
        >>> rows_path(Path("train/train-00000-0a1b2c3d.h5")).name
        'train-00000-0a1b2c3d.rows.npz'
    """
    return shard.with_suffix(".rows.npz")


def write_row_records(path: Path, records: RowRecords) -> None:
    """Write the file whole; equal records give equal bytes.

    Raises:
        OSError: The file cannot be written.
    """
    held: dict[str, Any] = {"states": records.states}
    if (records.names != records.states).any():
        held["names"] = records.names
    if records.repeats.any():
        held["repeats"] = records.repeats
    write_archive(path, ROWS_VERSION, held)


def read_row_records(path: DataPath) -> RowRecords:
    """Return the records of a file of ``write_row_records``.

    Raises:
        DataError: The file is missing, damaged or of another version.
    """
    with opened_archive(path, ROWS_VERSION) as held:
        states = held["states"]
        names = held["names"] if "names" in held else states
        repeats = held["repeats"] if "repeats" in held else np.zeros(len(states), np.int32)
        return RowRecords(names, states, repeats)
