"""Records that are spans of files: a file is opened when the first of its records is read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from caffe_import.file_access.regular_file import open_regular
from deepspark_ops.ingest.records import LocatedRecords, ReadRecord, RecordError
from deepspark_ops.stores.staging import local_copy
from deepspark_ops.stores.store_path import DataPath


@contextmanager
def opened_files(files: Sequence[DataPath]) -> Iterator[Callable[[int, int, int], bytes]]:
    """Yield a function that returns the bytes at (number of the file, offset, number of bytes)."""
    with ExitStack() as stack:
        handles: dict[int, int] = {}

        def read(number: int, offset: int, n_bytes: int) -> bytes:
            if number not in handles:
                local = stack.enter_context(local_copy(files[number]))
                handles[number] = stack.enter_context(open_regular(local)).fileno()
            return os.pread(handles[number], n_bytes, offset)

        yield read


@dataclass(frozen=True)
class SpanReader(LocatedRecords):
    """Reads spans of files by number.

    Attributes:
        files: The files.
        locations: (n, 3): number of the file, offset, bytes; -1 bytes mark a missing record.
        missing: Reason for the rejection of a missing record.
    """

    files: tuple[DataPath, ...]
    missing: str

    @contextmanager
    def opened(self) -> Iterator[ReadRecord]:
        """See ``RecordReader``."""
        with opened_files(self.files) as read_span:

            def read(index: int) -> bytes:
                number, offset, n_bytes = self.locations[index].tolist()
                if n_bytes < 0:
                    raise RecordError(self.missing)
                return read_span(number, offset, n_bytes)

            yield read
