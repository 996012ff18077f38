"""Records of Caffe's databases: Datum messages under numbered keys."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np

from caffe_import.data.leveldb_source import LeveldbSource
from caffe_import.data.lmdb_source import LmdbSource
from caffe_import.errors import DataSourceError
from caffe_import.files.datum import Image, decode_datum, parse_datum
from caffe_import.proto import caffe_pb2
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.records import RecordReader, Rejection, SourceIndex
from deepspark_ops.stores.staging import local_copy
from deepspark_ops.stores.store_path import DataPath

_NUMBER = re.compile(r"^\d{8}_")
_Database = TypeVar("_Database", LmdbSource, LeveldbSource)


@contextmanager
def opened_database(folder: DataPath, kind: Callable[[Path], _Database]) -> Iterator[_Database]:
    """Open a database, or the local copy of a database in a store.

    Raises:
        DataError: The database is missing, empty or damaged; also while records are read.
    """
    with local_copy(folder) as local, closing(kind(local)) as database:
        try:
            yield database
        except DataSourceError as error:
            raise DataError(str(error)) from error


def image_of_datum(record: bytes | memoryview, *, where: str) -> Image | bytes:
    """Return the image of a Datum; a compressed image stays compressed. ``where`` begins an error.

    Raises:
        DataSourceError: The record is no Datum, or a damaged one.
    """
    datum = parse_datum(record, where=where)
    return datum.data if datum.encoded else decode_datum(record, where=where)[0]


class DatumIndex:
    """Labels and names of a database's records; a record that is no Datum is rejected."""

    def __init__(self, database: DataPath) -> None:
        """Start without records; ``database`` is for messages."""
        self._database = database
        self._keys: list[bytes] = []
        self._labels: list[int] = []
        self._contents: list[int] = []
        self._rejected: list[Rejection] = []

    def add(self, key: bytes, record: bytes | memoryview) -> bool:
        """Add the next record; return whether the record is a Datum."""
        try:
            datum = parse_datum(record, where=f"record {key!r}")
        except DataSourceError as error:
            position = len(self._keys) + len(self._rejected)
            name = key.decode("utf-8", "surrogateescape")
            self._rejected.append(Rejection(position, name, None, str(error)))
            return False
        self._keys.append(key)
        self._labels.append(datum.label)
        self._contents.append(content_sum(datum))
        return True

    def result(self, make_reader: Callable[[tuple[bytes, ...]], RecordReader]) -> SourceIndex:
        """Return the index; ``make_reader`` returns the reader of the records with these keys.

        Raises:
            DataError: No record is a Datum.
        """
        if not self._keys:
            msg = f"{self._database}: {self._rejected[0].reason}"
            raise DataError(msg)
        return SourceIndex(
            labels=np.array(self._labels, np.int64),
            names=names_of_keys(self._keys, self._contents),
            reader=make_reader(tuple(self._keys)),
            rejected=tuple(self._rejected),
        )


def content_sum(datum: caffe_pb2.Datum) -> int:
    """Return a checksum of a record's image; the label does not count."""
    return zlib.crc32(datum.data or np.asarray(datum.float_data, np.float32).tobytes())


def names_of_keys(keys: Sequence[bytes], contents: Sequence[int]) -> list[str]:
    """Return the records' names: the keys without the numbers of convert_imageset, since shards have new numbers.

    Args:
        keys: (n,) keys of the database.
        contents: (n,) checksums of the images. The name of an image that a list has twice says which image it is;
            a name that several images share, such as their label, does not, so these keep the whole key.

    Example:
        >>> names_of_keys([b"00000012_cat/1.jpg", b"dog", b"00000013_cat/1.jpg"], [8, 9, 8])
        ['cat/1.jpg', 'dog', 'cat/1.jpg']
        >>> names_of_keys([b"00000000_3", b"00000001_3", b"00000002_4"], [8, 9, 7])
        ['00000000_3', '00000001_3', '4']
    """
    whole_names = [key.decode("utf-8", "surrogateescape") for key in keys]
    return distinct_names([_NUMBER.sub("", key) for key in whole_names], whole_names, contents)


def distinct_names(names: Sequence[str], whole_names: Sequence[str], contents: Sequence[int]) -> list[str]:
    """Return each record's name, or the record's whole name if another image has the same name.

    A record's name decides the split, so a class as the name would put the whole class into a single split.

    Args:
        names: (n,) short names.
        whole_names: (n,) names that differ from record to record.
        contents: (n,) checksums of the images.
    """
    content_of: dict[str, int] = {}
    shared = {
        name for name, content in zip(names, contents, strict=True) if content_of.setdefault(name, content) != content
    }
    return [other if name in shared else name for name, other in zip(names, whole_names, strict=True)]
