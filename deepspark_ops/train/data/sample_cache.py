"""A dataset with a memory: what was read once is not decoded again, as long as all of it fits."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from deepspark_ops.shards.reader import Dataset

CACHE_BYTES = 256 * 2**20
"""Per dataset and process: CIFAR-10 as raw bytes (147 MiB) fits, photographs do not and are read piece by piece."""
_BLOCK_SAMPLES = 256

Column = npt.NDArray[Any]


class SampleCache:
    """Reads a dataset by (shard, start, count) or by position in the whole. Safe to share between threads.

    Decoding a Datum costs more than a small net's forward pass, so samples are kept as stored (uint8 pixels), not as
    transformed; memory is taken as it is filled.
    """

    def __init__(self, dataset: Dataset, limit_bytes: int = CACHE_BYTES) -> None:
        """Own ``dataset``: close the cache, not the dataset.

        Args:
            dataset: Where samples come from.
            limit_bytes: A dataset larger than this is never kept; 0 keeps none.
        """
        self.dataset = dataset
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._firsts = [0]
        for shard in dataset.shards:
            self._firsts.append(self._firsts[-1] + shard.n_samples)
        self._columns: tuple[Column, ...] | None = None
        self._is_kept = limit_bytes > 0
        self._has_block = np.zeros(-(-self.n_samples // _BLOCK_SAMPLES), np.bool_)

    @property
    def n_samples(self) -> int:
        """Samples of all shards."""
        return self._firsts[-1]

    def read(self, shard: int, start: int, count: int) -> tuple[Column, ...]:
        """Return samples ``[start, start + count)`` of one shard, one array per column; read them, never write them."""
        with self._lock:
            first = self._firsts[shard] + start
            if self._is_kept and self._fill(first, first + count):
                return tuple(column[first : first + count] for column in self._columns or ())
            return self.dataset.read(shard, start, count)

    def read_wrapped(self, position: int, count: int) -> tuple[Column, ...]:
        """Return ``count`` samples from ``position`` in the whole on, going on at the first after the last.

        ``position`` is taken modulo the number of samples, as Caffe's cursors wrap.
        """
        parts = []
        while count > 0:
            position %= self.n_samples
            shard, index = self._place(position)
            piece = min(count, self._firsts[shard + 1] - position)
            parts.append(self.read(shard, index, piece))
            position, count = position + piece, count - piece
        return parts[0] if len(parts) == 1 else tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))

    def first_of(self, shard: int) -> int:
        """Return the position in the whole of a shard's first sample."""
        return self._firsts[shard]

    def sample_name(self, position: int) -> str:
        """Return what a message calls the sample at a position in the whole, taken modulo the number of samples."""
        shard, index = self._place(position % self.n_samples)
        with self._lock:
            return self.dataset.sample_name(shard, index)

    def pieces(self, position: int, count: int) -> list[tuple[int, int, int]]:
        """Return where samples ``[position, position + count)`` of the whole are: shard, first in it, how many."""
        found, stop = [], position + count
        while position < stop:
            shard, index = self._place(position)
            piece = min(stop, self._firsts[shard + 1]) - position
            found.append((shard, index, piece))
            position += piece
        return found

    def keys(self, position: int, count: int) -> list[str] | None:
        """Return what the source calls samples ``[position, position + count)``; None where they have no names."""
        with self._lock:
            parts = [self.dataset.keys(*piece) for piece in self.pieces(position, count)]
        known = [part for part in parts if part is not None]
        return [key for part in known for key in part] if len(known) == len(parts) else None

    def texts(self, position: int, count: int, name: str) -> list[str]:
        """Return a further column of samples ``[position, position + count)``; see ``Dataset.texts``."""
        with self._lock:
            return [text for piece in self.pieces(position, count) for text in self.dataset.texts(*piece, name)]

    def close(self) -> None:
        """Close the dataset's files and forget what was read."""
        with self._lock:
            self.dataset.close()
            self._columns = None
            self._has_block[:] = False

    def _place(self, position: int) -> tuple[int, int]:
        """Return shard and index in it of a position in the whole."""
        shard = int(np.searchsorted(self._firsts, position, side="right")) - 1
        return shard, position - self._firsts[shard]

    def _fill(self, first: int, stop: int) -> bool:
        """Make sure that ``[first, stop)`` of the whole is in memory; False if the dataset is not to be kept."""
        for block in range(first // _BLOCK_SAMPLES, -(-stop // _BLOCK_SAMPLES)):
            if not self._has_block[block] and not self._load(block):
                return False
        return True

    def _load(self, block: int) -> bool:
        at, stop = block * _BLOCK_SAMPLES, min(self.n_samples, (block + 1) * _BLOCK_SAMPLES)
        while at < stop:
            shard, index = self._place(at)
            piece = min(stop, self._firsts[shard + 1]) - at
            found = self.dataset.read(shard, index, piece)
            if self._columns is None and not self._allocate(found):
                return False
            for column, values in zip(self._columns or (), found, strict=True):
                if column.dtype != values.dtype or column.shape[1:] != values.shape[1:]:
                    self._give_up()
                    return False
                column[at : at + piece] = values
            at += piece
        self._has_block[block] = True
        return True

    def _allocate(self, sample: tuple[Column, ...]) -> bool:
        if sum(values.nbytes for values in sample) * self.n_samples > self._limit_bytes * len(sample[0]):
            self._give_up()
            return False
        self._columns = tuple(np.empty((self.n_samples, *values.shape[1:]), values.dtype) for values in sample)
        return True

    def _give_up(self) -> None:
        self._is_kept = False
        self._columns = None
