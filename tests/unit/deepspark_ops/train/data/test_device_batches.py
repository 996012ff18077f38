"""One call ahead, in order, counted when taken; the device is a copy of the arrays, the batches are real."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest

from deepspark_ops.exchange.state.leases import DatasetOrder, Lease
from deepspark_ops.train.data.batch_source import Feeds
from deepspark_ops.train.data.device_batches import DeviceBatches
from tests.unit.deepspark_ops.train.data.test_batches import (
    LeaseLink,
    batches_of,
    labels_taken,
    layer_of,
    numbered_dataset,
)

WAIT_S = 60.0


class Device:
    """Keeps what was copied, and lets a test wait for the next copy or hold it up."""

    def __init__(self) -> None:
        self.copied: list[int] = []
        self.threads: set[str] = set()
        self.may_copy = threading.Event()
        self.may_copy.set()
        self.turn = threading.Condition()

    def copy(self, feeds: Feeds) -> Feeds:
        assert self.may_copy.wait(WAIT_S)
        moved = {top: values.copy() for top, values in feeds.items()}
        with self.turn:
            self.copied.append(len(moved["data_label"]))
            self.threads.add(threading.current_thread().name)
            self.turn.notify_all()
        return moved

    def await_copies(self, count: int) -> list[int]:
        with self.turn:
            assert self.turn.wait_for(lambda: len(self.copied) >= count, WAIT_S)
            return list(self.copied)


def opened(device: Device, link: LeaseLink, *, iter_size: int = 1) -> tuple:
    leased = batches_of(link, [layer_of(numbered_dataset((11,)), 2)], iter_size=iter_size)
    return leased, DeviceBatches(leased, device.copy, iter_size=iter_size)


def test_steps_come_in_the_order_of_the_samples_however_they_are_asked_for() -> None:
    leased, batches = opened(Device(), LeaseLink(train=DatasetOrder((11,), piece_samples=3)), iter_size=2)
    with leased:
        try:
            labels = [label for max_steps in (3, 1, 5, 2, 7, 1) for label in labels_taken(batches, max_steps)]
        finally:
            batches.close()
    assert labels == [1000 + i % 11 for i in range(4 * 19)]


def test_the_next_call_is_on_the_device_while_this_one_is_computed_and_no_more_than_that() -> None:
    device = Device()
    leased, batches = opened(device, LeaseLink(train=DatasetOrder((11,))))
    with leased:
        try:
            feeds, n_steps = batches.take(3)
            held = feeds["data_label"].copy()
            assert n_steps == 3
            assert device.await_copies(2) == [3, 3]
            for _ in range(2):
                batches.take(3)
            assert device.await_copies(4) == [3, 3, 3, 3]
        finally:
            batches.close()
    assert np.array_equal(feeds["data_label"], held)  # not where the next batches are made
    assert len(device.copied) == 4
    assert not any(name == threading.main_thread().name for name in device.threads)


def test_a_step_that_is_ahead_is_not_used_yet() -> None:
    device, link = Device(), LeaseLink(train=DatasetOrder((11,), piece_samples=4))
    leased, batches = opened(device, link)
    with leased:
        try:
            batches.take(2)
            device.await_copies(2)
            assert batches.leases().get("train", {}).keys() <= {"1"}
            batches.take(1)  # the first of the two steps that are ahead
            assert batches.leases()["train"]["2"] == 2
        finally:
            batches.close()


def test_the_end_of_the_data_is_the_end_of_the_batches() -> None:
    leased, batches = opened(Device(), LeaseLink(limit=1, train=DatasetOrder((11,), piece_samples=6)))
    with leased:
        try:
            assert [batches.take(2)[1] for _ in range(4)] == [2, 1, 0, 0]
        finally:
            batches.close()


def test_an_error_of_a_copy_is_raised_by_its_reader() -> None:
    device = Device()
    leased, batches = opened(device, LeaseLink(train=DatasetOrder((11,))))
    with leased:
        try:
            device.may_copy.clear()
            device.may_copy.wait = lambda timeout: False  # type: ignore[method-assign]
            with pytest.raises(AssertionError):
                batches.take(1)
        finally:
            batches.close()


def test_closing_ends_a_wait_for_data_that_never_comes() -> None:
    has_asked, may_end = threading.Event(), threading.Event()

    class SlowLink(LeaseLink):
        def lease(self, dataset: str = "train", *, read: Sequence[Lease] = ()):
            if self.limit == 10**9 - 1:
                has_asked.set()
                assert may_end.wait(WAIT_S)
                return None
            return super().lease(dataset, read=read)

    leased, batches = opened(Device(), SlowLink(train=DatasetOrder((11,), piece_samples=2)))
    with leased:
        batches.take(1)
        assert has_asked.wait(WAIT_S)
        may_end.set()
        batches.close()
