"""Batches on the device before the graph asks: copied there during the computation of the call before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from deepspark_ops.train.data.batch_source import Feeds
from deepspark_ops.train.data.batches import LeasedBatches, Uses


class _Block(NamedTuple):
    """Some steps on the device: blob -> tensor (n_steps * iter_size, ...), and the samples that each step uses."""

    feeds: Mapping[str, Any]
    uses: list[Uses]


class DeviceBatches:
    """Takes batches of a worker a call ahead; a background thread copies the batches to the device.

    Used by a single thread. Samples count as used when ``take`` returns the samples, as without this class, so a
    snapshot does not count samples ahead. The device holds at most two blocks: the present and the next.
    """

    def __init__(self, leased: LeasedBatches, copy: Callable[[Feeds], Feeds], *, iter_size: int) -> None:
        """Copy nothing yet: the first ``take`` decides the length of the first call.

        Args:
            leased: Makes the batches; from now on only this object draws batches.
            copy: Copies feeds to the device's memory and returns the complete copies; called in the background.
            iter_size: Passes of a step.
        """
        self._leased = leased
        self._copy = copy
        self._iter_size = iter_size
        self._thread = ThreadPoolExecutor(1, "device-batches")
        self._ahead: Future[_Block] | None = None
        self._block = _Block({}, [])
        self._used = self._missing = self._grant_steps = 0

    def take(self, max_steps: int) -> tuple[Feeds, int]:
        """See ``BatchSource``; the feeds are tensors.

        Raises:
            BaseException: The error of a background thread, unchanged.
        """
        if self._missing == 0:
            self._grant_steps = max_steps  # a new grant; the next grant probably has the same length
        if self._used == len(self._block.uses):
            ahead = self._ahead or self._thread.submit(self._copied, max_steps)
            self._block, self._used = ahead.result(), 0
        first, stop = self._used, min(len(self._block.uses), self._used + max_steps)
        for uses in self._block.uses[first:stop]:
            self._leased.book(uses)
        feeds = self._part(first, stop)
        self._used, self._missing = stop, max_steps - (stop - first)
        if stop == len(self._block.uses) and stop > first:
            self._ahead = self._thread.submit(self._copied, self._missing or self._grant_steps)
        return feeds, stop - first

    def test_batches(self, net: int, ordinal: int) -> Iterator[Feeds]:
        """See ``BatchSource``."""
        return self._leased.test_batches(net, ordinal)

    def leases(self) -> Mapping[str, Mapping[str, int]]:
        """See ``BatchSource``."""
        return self._leased.leases()

    def close(self) -> None:
        """End the thread; the owner of the source closes the source."""
        self._leased.stop()
        self._thread.shutdown()

    def _copied(self, n_steps: int) -> _Block:
        feeds, uses = self._leased.draw(n_steps)
        return _Block(self._copy(feeds), uses)

    def _part(self, first: int, stop: int) -> Feeds:
        if first == 0 and stop == len(self._block.uses):
            return self._block.feeds
        passes = slice(first * self._iter_size, stop * self._iter_size)
        return {top: values[passes] for top, values in self._block.feeds.items()}
