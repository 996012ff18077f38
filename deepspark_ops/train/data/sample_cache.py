"""A dataset with a memory: a sample is decoded once, if the whole dataset fits."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.data.sample_source import join_columns
from deepspark_ops.shards.reader import Dataset

CACHE_BYTES = 256 * 2**20
"""Per dataset and process: CIFAR-10 as raw bytes (147 MiB) fits, photographs do not and are read piece by piece."""
_BLOCK_SAMPLES = 256

Column = npt.NDArray[Any]


class SampleCache:
    """Reads a dataset by (shard, start, count) or by position in the whole. Safe to share between threads.

    Decoding a Datum costs more than a small net's forward pass. So the cache keeps stored samples (uint8 pixels), not
    transformed samples. The cache takes memory as blocks come in.
    """

    def __init__(self, dataset: Dataset, limit_bytes: int = CACHE_BYTES) -> None:
        """Own ``dataset``: close the cache, not the dataset.

        Args:
            dataset: Source of the samples.
            limit_bytes: A larger dataset is never kept; 0 keeps no dataset.
        """
        self.dataset = dataset
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._firsts = [0]
        for shard in dataset.shards:
            self._firsts.append(self._firsts[-1] + shard.n_samples)
        self._columns: tuple[Column, ...] | None = None
        self._is_kept = limit_bytes > 0
        self._blocks: set[tuple[int, int]] = set()

    @property
    def n_samples(self) -> int:
        """Samples of all shards."""
        return self._firsts[-1]

    def read(self, shard: int, start: int, count: int) -> tuple[Column, ...]:
        """Return samples ``[start, start + count)`` of a shard, a read-only array per column."""
        with self._lock:
            if self._is_kept and self._fill(shard, start, count):
                first = self._firsts[shard] + start
                return tuple(column[first : first + count] for column in self._columns or ())
            return self.dataset.read(shard, start, count)

    def read_wrapped(self, position: int, count: int) -> tuple[Column, ...]:
        """Return ``count`` samples from ``position`` in the whole on, going on at the first after the last.

        ``position`` is taken modulo the number of samples, as Caffe's cursors wrap.
        """
        parts = []
        while count > 0:
            position %= self.n_samples
            shard, index = self._shard_and_index(position)
            piece = min(count, self._firsts[shard + 1] - position)
            parts.append(self.read(shard, index, piece))
            position, count = position + piece, count - piece
        return parts[0] if len(parts) == 1 else tuple(join_columns(columns) for columns in zip(*parts, strict=True))

    def will_read(self, shards: Sequence[int]) -> None:
        """Fetch shards of a store ahead, in this order, but for shards in memory."""
        with self._lock:
            missing = [shard for shard in shards if not self._has(shard)]
        self.dataset.will_read(missing)

    def first_of(self, shard: int) -> int:
        """Return the position in the whole of a shard's first sample."""
        return self._firsts[shard]

    def sample_name(self, position: int) -> str:
        """Return a message's name for the sample at a position in the whole, modulo the number of samples."""
        shard, index = self._shard_and_index(position % self.n_samples)
        with self._lock:
            return self.dataset.sample_name(shard, index)

    def pieces(self, position: int, count: int) -> list[tuple[int, int, int]]:
        """Return shard, first index and count of the pieces of samples ``[position, position + count)``."""
        pieces, stop = [], position + count
        while position < stop:
            shard, index = self._shard_and_index(position)
            piece = min(stop, self._firsts[shard + 1]) - position
            pieces.append((shard, index, piece))
            position += piece
        return pieces

    def keys(self, position: int, count: int) -> list[str] | None:
        """Return the source's names of samples ``[position, position + count)``; None for samples without names."""
        with self._lock:
            parts = [self.dataset.keys(*piece) for piece in self.pieces(position, count)]
        named = [part for part in parts if part is not None]
        return [key for part in named for key in part] if len(named) == len(parts) else None

    def texts(self, position: int, count: int, name: str) -> list[str]:
        """Return a further column of samples ``[position, position + count)``; see ``Dataset.texts``."""
        with self._lock:
            return [text for piece in self.pieces(position, count) for text in self.dataset.texts(*piece, name)]

    def close(self) -> None:
        """Close the dataset's files and forget the samples."""
        with self._lock:
            self.dataset.close()
            self._columns = None
            self._blocks.clear()

    def _shard_and_index(self, position: int) -> tuple[int, int]:
        """Return the shard of a position in the whole, and the index in this shard."""
        shard = int(np.searchsorted(self._firsts, position, side="right")) - 1
        return shard, position - self._firsts[shard]

    def _has(self, shard: int) -> bool:
        n_samples = self._firsts[shard + 1] - self._firsts[shard]
        return all((shard, block) in self._blocks for block in range(-(-n_samples // _BLOCK_SAMPLES)))

    def _fill(self, shard: int, start: int, count: int) -> bool:
        """Read missing blocks of a shard into memory; return False if the dataset is too large.

        A block ends with its shard: the next shard may have to be fetched.
        """
        for block in range(start // _BLOCK_SAMPLES, -(-(start + count) // _BLOCK_SAMPLES)):
            if (shard, block) not in self._blocks and not self._load(shard, block):
                return False
        return True

    def _load(self, shard: int, block: int) -> bool:
        start = block * _BLOCK_SAMPLES
        count = min(_BLOCK_SAMPLES, self._firsts[shard + 1] - self._firsts[shard] - start)
        samples = self.dataset.read(shard, start, count)
        if self._columns is None and not self._allocate(samples):
            return False
        at = self._firsts[shard] + start
        for column, values in zip(self._columns or (), samples, strict=True):
            if column.dtype != values.dtype or column.shape[1:] != values.shape[1:]:
                self._give_up()
                return False
            column[at : at + count] = values
        self._blocks.add((shard, block))
        return True

    def _allocate(self, sample: tuple[Column, ...]) -> bool:
        is_large = sum(values.nbytes for values in sample) * self.n_samples > self._limit_bytes * len(sample[0])
        if is_large or any(values.dtype == np.object_ for values in sample):
            self._give_up()
            return False
        self._columns = tuple(np.empty((self.n_samples, *values.shape[1:]), values.dtype) for values in sample)
        return True

    def _give_up(self) -> None:
        self._is_kept = False
        self._columns = None
