"""The files of a table: a single file, or the part files of a folder that Spark wrote."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import overload

from caffe_import.file_access.regular_file import regular_path
from deepspark_ops.config.ingest import FileStamp
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.files.image_files import file_stamp, is_image_name, source_digest
from deepspark_ops.stores.store_path import DataPath, name_below, paths_in

_READ_UP_TO_BYTES = 2**26
"""A larger table's digest is of names, sizes and times of change: a read takes as long as an ingestion."""
_LOOKED_AT = 200
SEPARATORS = (",", ";", "\t", "|")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


@overload
def data_files(path: Path) -> Iterator[Path]: ...
@overload
def data_files(path: DataPath) -> Iterator[DataPath]: ...
def data_files(path: DataPath) -> Iterator[DataPath]:
    """Yield a table's files in a fixed order: the file, or the data files at any depth of a folder.

    Names that start with ``_`` or ``.`` are notes of the program that wrote the folder. Spark ignores such names, too.
    """
    if not path.is_dir():
        yield path
        return
    for file in paths_in(path):
        if file.name.startswith(("_", ".")):
            continue
        if file.is_dir():
            yield from data_files(file)
        else:
            yield file


def first_data_file(path: DataPath, suffixes: tuple[str, ...]) -> DataPath | None:
    """Return the first file with a suffix of ``suffixes``; None if an image or too many other files precede."""
    for looked, file in enumerate(data_files(path)):
        if file.name.lower().endswith(suffixes):
            return file
        if looked >= _LOOKED_AT or is_image_name(file.name):
            return None
    return None


def digest_table(path: DataPath, by: FileStamp = "time") -> str:
    """Return a digest of a table's files: of the content, or of the stamps of a large table.

    Raises:
        OSError: A file cannot be read.
    """
    files = list(data_files(path))
    is_large = sum(_n_bytes(file) for file in files) > _READ_UP_TO_BYTES
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{name_below(path, file)}\0".encode("utf-8", "surrogateescape"))
        digest.update(file_stamp(file, by) if is_large else source_digest(file).encode())
    return digest.hexdigest()


def _n_bytes(file: DataPath) -> int:
    return (regular_path(file) if isinstance(file, Path) else file).stat().st_size


def no_rows(source: DataPath) -> DataError:
    """Return the error of a table without rows."""
    return DataError(f"source={source}: the table has no rows")


def is_header_alone(text: str) -> bool:
    r"""Return whether a text is the header line of a table without a row.

    Example:
        >>> is_header_alone("age;price\n"), is_header_alone("age;price\n3;4.5\n")
        (True, False)
    """
    lines = _lines(text)
    return len(lines) == 1 and separator_of("\n".join(lines * 2)) is not None


def _lines(text: str) -> list[str]:
    """Return the lines that are not blank; Python's ``splitlines`` also ends a line at marks inside of a value."""
    return [line for line in re.split("\r\n?|\n", text) if line.strip()]


def separator_of(start: str) -> str | None:
    r"""Return the separator of columns of a text with a header line; None of another text.

    The last line may be cut off. A header has at least two names and no number. The first row or half of the rows have
    a value for each name. A text whose lines name images is an image list, and no table.

    Example:
        >>> separator_of("age;price\n3;4.5\n")
        ';'
        >>> separator_of("path,label\na.jpg,3\n") is separator_of("1,2\n3,4\n") is None
        True
    """
    lines = _lines(start)[:20]
    if len(lines) < 2:
        return None
    if len(lines) > 2 and not start.endswith("\n"):
        lines.pop()
    for separator in SEPARATORS:
        try:
            rows = list(csv.reader(io.StringIO("\n".join(lines)), delimiter=separator))
        except csv.Error:  # a value of more than 128 KiB
            continue
        header = [name.strip() for name in rows[0]]
        is_header = len(header) > 1 and all(header) and len(set(header)) == len(header)
        if not is_header or any(_NUMBER.fullmatch(name) for name in header):
            continue
        widths = [len(row) for row in rows[1:]]
        if widths[:1] != [len(header)] and 2 * widths.count(len(header)) < len(widths):
            continue
        return None if any(is_image_name(value.strip()) for row in rows[1:] for value in row) else separator
    return None
