"""Cut a worker's shard to a page in the middle of a read, in the worker's process. No TensorFlow."""

from __future__ import annotations

import itertools
import os

from caffe_import.data.lmdb_source import LmdbSource
from caffe_import.data.sample_source import Column
from deepspark_ops.train.data.sample_cache import SampleCache


def cut_short_while_it_is_read() -> None:
    """Cut the shard at the fourth read; nothing of it is kept in memory, as of a large dataset."""
    read, reads = LmdbSource.read, itertools.count()

    def cut_and_read(self: LmdbSource, start: int, count: int) -> list[Column]:
        if next(reads) == 3:
            os.truncate(self.folder / "data.mdb", 4096)
        return read(self, start, count)

    LmdbSource.read = cut_and_read  # type: ignore[method-assign]
    SampleCache._allocate = lambda self, sample: self._give_up()  # type: ignore[method-assign, assignment]
