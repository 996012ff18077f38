"""What is known of each row of a table's shard, in a file beside it: a later ingestion finds there what has changed.

Format version 1: a NumPy archive (``.npz``) without pickled objects; ``format_version`` is one of its arrays. ``names``
is left out where it equals ``states``, ``repeats`` where all are 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from deepspark_ops.shards.record_archive import opened_archive, write_archive
from deepspark_ops.stores.store_path import DataPath

ROWS_VERSION: Final = 1


@dataclass(frozen=True)
class RowRecords:
    """The rows of one shard, in its order, (n,) each.

    Attributes:
        names: Hash of the row's id; of a table without ids that of the whole row.
        states: Hash of all that is kept of the row.
        repeats: How often the row was taken before, by balancing; 0 for the first.
    """

    names: npt.NDArray[np.uint64]
    states: npt.NDArray[np.uint64]
    repeats: npt.NDArray[np.int32]


def rows_path(shard: DataPath) -> DataPath:
    """Return where the records of a table's shard are.

    Example:
        >>> rows_path(Path("train/train-00000-0a1b2c3d.h5")).name
        'train-00000-0a1b2c3d.rows.npz'
    """
    return shard.with_suffix(".rows.npz")


def write_row_records(path: Path, records: RowRecords) -> None:
    """Write the file whole; equal records give equal bytes.

    Raises:
        OSError: It cannot be written.
    """
    held: dict[str, Any] = {"states": records.states}
    if (records.names != records.states).any():
        held["names"] = records.names
    if records.repeats.any():
        held["repeats"] = records.repeats
    write_archive(path, ROWS_VERSION, held)


def read_row_records(path: DataPath) -> RowRecords:
    """Return what ``write_row_records`` wrote.

    Raises:
        DataError: There is no such file, or it is damaged or of another version.
    """
    with opened_archive(path, (ROWS_VERSION,)) as held:
        states = held["states"]
        names = held["names"] if "names" in held else states
        repeats = held["repeats"] if "repeats" in held else np.zeros(len(states), np.int32)
        return RowRecords(names, states, repeats)
