"""Batches against plain loops over the samples; leases come from the real leases, files are arrays in memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from caffe_import.data.memory_source import MemorySource
from caffe_import.data.sample_source import column_of, compacted
from caffe_import.data.transform import TransformOptions
from caffe_import.net.label_users import LabelUser
from caffe_import.net.layer_registry import ClassLabels
from deepspark_ops.errors import DataError
from deepspark_ops.exchange.state.leases import DataLeases, DatasetOrder, Lease
from deepspark_ops.shards.reader import Dataset, ShardInfo
from deepspark_ops.train.data.batches import LeasedBatches, Ring
from deepspark_ops.train.data.data_layers import FedLayer, NetFeed
from deepspark_ops.train.data.label_check import LabelColumn
from deepspark_ops.train.data.sample_cache import SampleCache


class LeaseLink:
    """The call that batches need, from real leases; ``limit`` leases, then none."""

    def __init__(self, limit: int = 10**9, **orders: DatasetOrder) -> None:
        self.leases = {name: DataLeases(name, order) for name, order in orders.items()}
        self.returned: list[Lease] = []
        self.limit = limit

    def lease(self, dataset: str = "train", *, read: Sequence[Lease] = ()) -> Lease | None:
        self.returned += read
        for lease in read:
            self.leases[dataset].complete(0, lease.id)
        if self.limit == 0:
            return None
        self.limit -= 1
        return self.leases[dataset].lease(0)


class Pictures(MemorySource):
    """Images (n,) of objects, which come as an array where their shapes are equal, as from files."""

    def read(self, start: int, count: int) -> list[np.ndarray]:
        return [compacted(column) for column in super().read(start, count)]


def numbered_dataset(
    shards: tuple[int, ...], *, pixels: np.ndarray | None = None, shape: tuple[int, ...] | None = None
) -> Dataset:
    """Sample i of the whole is an image full of i, its label is 1000 + i."""
    n = sum(shards)
    images = (
        np.broadcast_to(np.arange(n, dtype=np.uint8).reshape(n, 1, 1, 1), (n, 2, 3, 3)) if pixels is None else pixels
    )
    labels = np.arange(n) + 1000
    firsts = np.cumsum([0, *shards])
    return Dataset(
        columns=("data", "label"),
        sample_shapes=(shape or images.shape[1:], ()),
        shards=[ShardInfo(f"shard{i}", count) for i, count in enumerate(shards)],
        open_shard=lambda i: Pictures([images[firsts[i] : firsts[i + 1]], labels[firsts[i] : firsts[i + 1]]]),
        is_transformed=True,
    )


def layer_of(dataset: Dataset, batch: int, *, transform=None, phase="TRAIN", stream="train", name="data") -> FedLayer:
    side = transform.crop_size if transform is not None and transform.crop_size else 3
    tops = {name: (batch, 2, side, side), f"{name}_label": (batch,)}
    return FedLayer(name, tops, (0, 1), SampleCache(dataset), transform, stream, phase)


def batches_of(link, layers, tests=(), *, iter_size=1, first_step=0, worker=0) -> LeasedBatches:
    return LeasedBatches(link, layers, tests, iter_size=iter_size, seed=3, worker=worker, first_step=first_step)


def labels_taken(batches: LeasedBatches, steps: int, top: str = "data_label") -> list[int]:
    labels: list[int] = []
    while steps:
        feeds, n = batches.take(steps)
        labels += feeds[top].ravel().astype(int).tolist()
        steps -= n
    return labels


def test_label_that_is_no_class_ends_training_and_tests() -> None:
    labels = LabelColumn(1, LabelUser("loss", "SoftmaxWithLoss", "ip", ClassLabels(1006)))
    layer = replace(layer_of(numbered_dataset((5, 2)), 4), labels=(labels,))
    link = LeaseLink(train=DatasetOrder((5, 2), piece_samples=4))
    finding = r'^layer "loss" \(SoftmaxWithLoss\): label 1006 of sample 1 of shard1 is none of the 1006 classes'
    with batches_of(link, [layer], [NetFeed((layer,), 2)]) as batches:
        with pytest.raises(DataError, match=finding):
            labels_taken(batches, 2)
        with pytest.raises(DataError, match=finding):
            list(batches.test_batches(0, 0))


def test_file_order_wraps_over_shards_and_epochs() -> None:
    link = LeaseLink(train=DatasetOrder((5, 2, 4), piece_samples=3))
    with batches_of(link, [layer_of(numbered_dataset((5, 2, 4)), 4)]) as batches:
        assert labels_taken(batches, 9) == [1000 + i % 11 for i in range(36)]
    assert len(link.returned) == 16  # five pieces (3 2 2 3 1) three times, then the first again


def test_iter_size_gives_that_many_passes_per_step() -> None:
    link = LeaseLink(train=DatasetOrder((10,)))
    with batches_of(link, [layer_of(numbered_dataset((10,)), 2)], iter_size=3) as batches:
        feeds, n = batches.take(2)
        assert n == 2
        assert feeds["data"].shape == (6, 2, 2, 3, 3)
        assert feeds["data_label"].ravel().tolist() == [1000 + i % 10 for i in range(12)]


def test_shuffled_epoch_holds_every_sample_once_and_differs_from_file_order() -> None:
    link = LeaseLink(train=DatasetOrder((7, 5), order="shuffled", seed=9, piece_samples=4))
    with batches_of(link, [layer_of(numbered_dataset((7, 5)), 3)]) as batches:
        first, second = labels_taken(batches, 4), labels_taken(batches, 4)
    assert sorted(first) == sorted(second) == [1000 + i for i in range(12)]
    assert first != sorted(first)
    assert first != second


def test_layers_of_one_stream_get_the_same_samples() -> None:
    link = LeaseLink(train=DatasetOrder((9,), order="shuffled", piece_samples=4))
    dataset = numbered_dataset((9,))
    layers = [layer_of(dataset, 2, name="left"), layer_of(dataset, 2, name="right")]
    with batches_of(link, layers) as batches:
        feeds, _ = batches.take(1)
        assert feeds["left_label"].tolist() == feeds["right_label"].tolist()
        assert feeds["left"].tolist() == feeds["right"].tolist()


def test_transform_is_applied_to_the_image_only() -> None:
    link = LeaseLink(train=DatasetOrder((6,)))
    options = TransformOptions(scale=0.5, mean_values=(1.0, 2.0))
    with batches_of(link, [layer_of(numbered_dataset((6,)), 2, transform=options)]) as batches:
        feeds, _ = batches.take(1)
    expected = [[(i - mean) * 0.5 for mean in (1.0, 2.0)] for i in range(2)]
    assert feeds["data"][0, :, :, 0, 0].tolist() == expected
    assert feeds["data_label"][0].tolist() == [1000.0, 1001.0]


def random_images() -> np.ndarray:
    return np.random.default_rng(5).integers(0, 255, (12, 2, 3, 3), dtype=np.uint8)


def test_random_draws_depend_on_seed_worker_and_own_step_alone() -> None:
    options = TransformOptions(mirror=True, crop_size=2)

    def draw(worker: int, first_step: int, skip_steps: int, take: int) -> np.ndarray:
        link = LeaseLink(train=DatasetOrder((12,), piece_samples=12))
        link.leases["train"].restore(
            {**link.leases["train"].to_state(), "returned": [(0, 0, 2 * skip_steps)], "next": 1}
        )
        layers = [layer_of(numbered_dataset((12,), pixels=random_images()), 2, transform=options)]
        with batches_of(link, layers, first_step=first_step, worker=worker) as batches:
            return np.concatenate([batches.take(1)[0]["data"].copy() for _ in range(take)])

    uninterrupted = draw(worker=0, first_step=0, skip_steps=0, take=6)
    resumed = draw(worker=0, first_step=2, skip_steps=2, take=4)
    assert resumed.tolist() == uninterrupted[2:].tolist()
    assert draw(worker=1, first_step=0, skip_steps=0, take=6).tolist() != uninterrupted.tolist()


def test_every_step_draws_anew() -> None:
    same = np.broadcast_to(random_images()[:1], (12, 2, 3, 3))
    link = LeaseLink(train=DatasetOrder((12,)))
    layers = [layer_of(numbered_dataset((12,), pixels=same), 4, transform=TransformOptions(mirror=True, crop_size=2))]
    with batches_of(link, layers, iter_size=2) as batches:
        feeds, _ = batches.take(3)
        assert len({feeds["data"][i].tobytes() for i in range(6)}) == 6


def test_position_counts_taken_and_no_prefetched_batches() -> None:
    link = LeaseLink(train=DatasetOrder((100,), piece_samples=10))
    with batches_of(link, [layer_of(numbered_dataset((100,)), 4)]) as batches:
        labels_taken(batches, 6)  # 24 samples: two pieces and 4 of the third
        reported = {str(lease.id): lease.count for lease in link.returned}
        assert {"1": 10, "2": 10, "3": 4} == reported | batches.leases()["train"]
        labels_taken(batches, 4)  # 40 samples: nothing is half used
    assert [lease.id for lease in link.returned] == [1, 2, 3, 4]
    assert batches.leases() == {}


def test_a_state_names_a_used_lease_until_the_server_knows_it_as_read() -> None:
    class AskedLink(LeaseLink):
        def lease(self, dataset: str = "train", *, read: Sequence[Lease] = ()) -> Lease | None:
            if read:
                named.append([batches.leases()[dataset].get(str(lease.id)) == lease.count for lease in read])
            return super().lease(dataset, read=read)

    named: list[list[bool]] = []
    link = AskedLink(train=DatasetOrder((100,), piece_samples=10))
    with batches_of(link, [layer_of(numbered_dataset((100,)), 4)]) as batches:
        labels_taken(batches, 100)
    assert sum(map(len, named)) == 40
    assert all(map(all, named))


def test_leases_of_two_datasets_have_the_same_numbers() -> None:
    link = LeaseLink(train=DatasetOrder((12,), piece_samples=6), more=DatasetOrder((8,), piece_samples=4))
    layers = [layer_of(numbered_dataset((12,)), 2), layer_of(numbered_dataset((8,)), 1, name="other", stream="more")]
    with batches_of(link, layers) as batches:
        labels_taken(batches, 2)
        assert batches.leases() == {"train": {"1": 4}, "more": {"1": 2}}
        labels_taken(batches, 4)
    assert {(lease.dataset, lease.id) for lease in link.returned} == {("train", 1), ("train", 2), ("more", 1)}
    assert batches.leases() == {"more": {"2": 2}}


def test_steps_of_one_call_lie_in_one_array_and_are_bounded_by_the_ring() -> None:
    link = LeaseLink(train=DatasetOrder((64,)))
    with batches_of(link, [layer_of(numbered_dataset((64,)), 1)]) as batches:
        sizes = [batches.take(64)[1] for _ in range(4)]
    assert sizes == [16] * 4


def test_test_batches_go_on_where_the_last_test_ended() -> None:
    dataset = numbered_dataset((5, 2))
    test = NetFeed((layer_of(dataset, 2, phase="TEST"),), 2)
    with batches_of(LeaseLink(), [], [test]) as batches:
        labels_of_tests = [
            feeds["data_label"].astype(int).tolist()
            for ordinal in range(2)
            for feeds in batches.test_batches(0, ordinal)
        ]
    assert labels_of_tests == [[1000, 1001], [1002, 1003], [1004, 1005], [1006, 1000]]


def test_a_net_without_data_takes_all_steps() -> None:
    with batches_of(LeaseLink(), []) as batches:
        assert batches.take(7) == ({}, 7)


def test_end_of_leases_is_no_steps() -> None:
    link = LeaseLink(limit=1, train=DatasetOrder((8,), piece_samples=8))
    with batches_of(link, [layer_of(numbered_dataset((8,)), 4)]) as batches:
        assert [batches.take(8)[1], batches.take(8)[1]] == [2, 0]


def test_error_of_the_background_thread_is_raised_by_take() -> None:
    class Broken(SampleCache):
        def read(self, shard, start, count):
            msg = "shard x: damaged"
            raise DataError(msg)

    layer = layer_of(numbered_dataset((8,)), 4)
    broken = FedLayer("data", layer.tops, (0, 1), Broken(numbered_dataset((8,))), None, "train", "TRAIN")
    with batches_of(LeaseLink(train=DatasetOrder((8,))), [broken]) as batches:
        with pytest.raises(DataError, match="shard x: damaged"):
            batches.take(1)


def test_close_ends_the_thread() -> None:
    batches = batches_of(LeaseLink(train=DatasetOrder((8,))), [layer_of(numbered_dataset((8,)), 4)])
    batches.take(1)
    batches.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "batches"]


class WatchedBatches(LeasedBatches):
    """Notes reads of the ring's counters by a thread that does not hold the lock."""

    unlocked: ClassVar[list[str]] = []

    def __getattribute__(self, name: str) -> object:
        if name in ("_head", "_held", "_ready") and not object.__getattribute__(self, "_turn")._is_owned():
            WatchedBatches.unlocked.append(name)
        return object.__getattribute__(self, name)


def test_the_rings_counters_are_read_under_the_lock() -> None:
    link = LeaseLink(train=DatasetOrder((5, 2, 4), piece_samples=3))
    layer = layer_of(numbered_dataset((5, 2, 4)), 4)
    with WatchedBatches(link, [layer], (), iter_size=1, seed=3, worker=0, first_step=0) as batches:
        assert len(labels_taken(batches, 9)) == 36
    assert WatchedBatches.unlocked == []


SIZES = [(3, 3), (3, 3), (2, 5), (3, 3), (4, 1), (2, 5), (3, 3)]


def sized_layer(name: str = "data") -> FedLayer:
    """Sample i has ``SIZES[i]``, is full of i, and its label is 1000 + i."""
    images = column_of([np.full((2, *size), index, np.uint8) for index, size in enumerate(SIZES)])
    dataset = numbered_dataset((7,), pixels=images, shape=(2, 3, 3))
    tops = {name: (1, 2, 3, 3), f"{name}_label": (1,)}
    return FedLayer(name, tops, (0, 1), SampleCache(dataset), None, "train", "TRAIN", takes_sizes=True)


@pytest.mark.parametrize("is_shared", [False, True])
def test_steps_of_one_size_are_taken_together_and_each_other_size_alone(is_shared) -> None:
    layer = sized_layer()
    shared = Ring.of([layer], (), 1) if is_shared else None
    link = LeaseLink(train=DatasetOrder((7,), piece_samples=5))
    taken = []
    with LeasedBatches(
        link, [layer], (), iter_size=1, seed=3, worker=0, first_step=0, n_steps=14, shared=shared
    ) as batches:
        while True:
            feeds, n = batches.take(4)
            if not n:
                break
            taken.append((n, feeds["data"].shape[3:], feeds["data"][:, 0, 0, 0, 0].tolist()))
            assert (feeds["data"] == feeds["data_label"][:, :, None, None, None] - 1000).all()
    assert sum(n for n, _, _ in taken) == 14
    numbers = [int(number) for _, _, of_call in taken for number in of_call]
    assert numbers == [i % 7 for i in range(14)]
    for n, size, of_call in taken:
        assert {SIZES[int(number)] for number in of_call} == {size}
        assert n == 1 or size == (3, 3)
    assert sum(use.count for use in link.returned) == 14 - sum(batches.leases().get("train", {}).values())


def test_passes_of_several_sizes_are_a_step_of_objects() -> None:
    with batches_of(LeaseLink(train=DatasetOrder((7,))), [sized_layer()], iter_size=2) as batches:
        for step in range(7):
            feeds, n = batches.take(1)
            assert n == 1
            numbers = [(2 * step + k) % 7 for k in range(2)]
            assert [values.shape for values in feeds["data"]] == [(1, 2, *SIZES[number]) for number in numbers]
            assert [int(values.max()) for values in feeds["data"]] == numbers
            assert feeds["data_label"].ravel().tolist() == [1000 + number for number in numbers]
            assert (feeds["data"].dtype == np.object_) == (SIZES[numbers[0]] != SIZES[numbers[1]])


def test_test_batches_have_the_size_of_the_sample() -> None:
    with batches_of(LeaseLink(), [], [NetFeed((sized_layer(),), 7)]) as batches:
        shapes = [feeds["data"].shape for feeds in batches.test_batches(0, 0)]
    assert shapes == [(1, 2, *size) for size in SIZES]
