"""The cache returns what the dataset holds, reads each sample once, and stays out of the way of large datasets."""

from __future__ import annotations

import numpy as np
import pytest

from caffe_import.data.memory_source import MemorySource
from deepspark_ops.shards.reader import Dataset, ShardInfo
from deepspark_ops.train.data.sample_cache import SampleCache

SHARDS = (300, 1, 420)


class CountingDataset(Dataset):
    """Counts the samples that are read."""

    def __init__(self) -> None:
        n = sum(SHARDS)
        self.images = np.random.default_rng(0).integers(0, 255, (n, 1, 2, 2), dtype=np.uint8)
        self.labels = np.arange(n)
        firsts = np.cumsum([0, *SHARDS])
        super().__init__(
            columns=("data", "label"),
            sample_shapes=((1, 2, 2), ()),
            shards=[ShardInfo(f"s{i}", count) for i, count in enumerate(SHARDS)],
            open_shard=lambda i: MemorySource(
                [self.images[firsts[i] : firsts[i + 1]], self.labels[firsts[i] : firsts[i + 1]]]
            ),
            is_transformed=True,
        )
        self.n_read = 0
        self.read_shards: set[int] = set()

    def read(self, shard, start, count):
        self.n_read += count
        self.read_shards.add(shard)
        return super().read(shard, start, count)

    def will_read(self, shards):
        self.fetched_ahead = list(shards)


@pytest.mark.parametrize("limit", [1 << 20, 0])
def test_reads_equal_the_dataset(limit: int) -> None:
    dataset = CountingDataset()
    cache = SampleCache(dataset, limit)
    images, labels = cache.read(2, 17, 200)
    assert labels.tolist() == list(range(318, 518))
    assert images.tolist() == dataset.images[318:518].tolist()


def test_each_sample_is_read_once() -> None:
    cache = SampleCache(dataset := CountingDataset())
    for _ in range(3):
        for shard, count in enumerate(SHARDS):
            cache.read(shard, 0, count)
    assert dataset.n_read == sum(SHARDS)


def test_a_read_touches_no_other_shard() -> None:
    """Another shard may be one that has to be fetched from a store."""
    cache = SampleCache(dataset := CountingDataset())
    cache.read(0, 260, 40)
    assert dataset.read_shards == {0}


def test_shards_in_memory_are_not_fetched_ahead() -> None:
    cache = SampleCache(dataset := CountingDataset())
    cache.read(0, 0, 300)
    cache.read(2, 0, 256)  # the second of the two blocks is missing
    cache.will_read([2, 0, 1])
    assert dataset.fetched_ahead == [2, 1]


def test_a_dataset_above_the_limit_is_not_kept() -> None:
    cache = SampleCache(dataset := CountingDataset(), limit_bytes=100)
    cache.read(0, 0, 10)
    dataset.n_read = 0
    cache.read(0, 0, 10)
    assert dataset.n_read == 10


def test_wrapped_reads_cross_shards_and_the_end() -> None:
    cache = SampleCache(CountingDataset())
    n = sum(SHARDS)
    _, labels = cache.read_wrapped(5 * n + 290, n + 20)
    assert labels.tolist() == [(290 + i) % n for i in range(n + 20)]
