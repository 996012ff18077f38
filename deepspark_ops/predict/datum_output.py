"""Values of blobs as LMDBs of Datum records, which Caffe's nets read, as by Caffe's tool ``extract_features``.

Source: BVLC Caffe 1.0, tools/extract_features.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from caffe_import.proto import caffe_pb2
from deepspark_ops.errors import ConfigError
from deepspark_ops.predict.columns import answer_columns
from deepspark_ops.shards.files.lmdb_shard import LmdbOutput, lmdb_output

_MAP_SIZE_BYTES: Final = 2**40
"""Caffe's size; the disk holds only the written pages."""
_DATABASE_FILES: Final = frozenset({"data.mdb", "lock.mdb"})


@dataclass(frozen=True)
class DatabasePlan:
    """The database of one blob.

    Attributes:
        blob: The blob's name.
        folder: The database.
        shape: (C, H, W) of a record: the blob's axes behind the batch, 1 for a missing axis.
    """

    blob: str
    folder: Path
    shape: tuple[int, int, int]


def database_plans(output: Path, schema: pa.Schema) -> list[DatabasePlan]:
    """Return a plan for each blob: ``output`` is the database of a single blob, or has a folder for each blob.

    Raises:
        ConfigError: A blob has more axes than a Datum, or a folder holds other files than a database.
    """
    blobs = answer_columns(schema)
    folders = [output] if len(blobs) == 1 else [output / blob.replace("/", "_") for blob in blobs]
    if len(set(folders)) < len(folders):
        repeated = next(folder for folder in folders if folders.count(folder) > 1)
        msg = f"blobs={','.join(blobs)}: two of them have the folder {repeated}; extract them one by one"
        raise ConfigError(msg)
    plans = []
    for blob, folder in zip(blobs, folders, strict=True):
        text = schema.field(blob).metadata[b"shape"].decode()
        extents = [int(extent) for extent in text.split(",") if extent]
        if len(extents) > 3:
            msg = f'blobs: "{blob}" has {len(extents)} axes behind the batch; format=lmdb: a Datum has at most 3'
            raise ConfigError(msg)
        _refuse_other_content(folder)
        channels, height, width = [*extents, 1, 1, 1][:3]
        plans.append(DatabasePlan(blob, folder, (channels, height, width)))
    return plans


def _refuse_other_content(folder: Path) -> None:
    """Refuse a path with other files than a database: the output would replace the files."""
    is_other = folder.exists() and not folder.is_dir()
    if is_other or (folder.is_dir() and {path.name for path in folder.iterdir()} - _DATABASE_FILES):
        msg = f"output={folder}: something else than a database is there; give a new folder for the LMDB"
        raise ConfigError(msg)


@contextmanager
def datum_outputs(plans: Sequence[DatabasePlan]) -> Iterator[DatumOutputs]:
    """Open a database for each blob; the databases appear after the block, unless the block fails.

    Raises:
        DataError: The disk is full.
    """
    with ExitStack() as stack:
        full = "extract the features of fewer inputs at a time"
        opened = [lmdb_output(plan.folder, map_size_bytes=_MAP_SIZE_BYTES, if_full=full) for plan in plans]
        yield DatumOutputs(list(zip(plans, map(stack.enter_context, opened), strict=True)))


class DatumOutputs:
    """Writes a record for each row into the database of each blob, with keys 0000000000, 0000000001, ...

    For one thread.
    """

    def __init__(self, databases: Sequence[tuple[DatabasePlan, LmdbOutput]]) -> None:
        """Write into open databases."""
        self._databases = databases

    def add(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Add rows: an array (n, k) for each blob."""
        for plan, database in self._databases:
            first = database.n_records
            rows = enumerate(np.asarray(columns[plan.blob], np.float32).tolist(), start=first)
            database.put([(b"%010d" % number, _datum(row, plan.shape)) for number, row in rows])


def _datum(values: Sequence[float], shape: tuple[int, int, int]) -> bytes:
    channels, height, width = shape
    datum = caffe_pb2.Datum(channels=channels, height=height, width=width)  # no label, as by Caffe
    datum.float_data.extend(values)
    return datum.SerializeToString()
