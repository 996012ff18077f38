"""A worker's batches: leased samples, transformed as in Caffe, made ahead by a background thread.

Data layers with equally many batches share a record order (a *stream*). Random draws depend on
(seed, worker, the worker's own step, pass, layer) alone, so a resumed worker repeats the draws.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.data.sample_source import column_of, compacted, join_columns
from caffe_import.net.layer_registry import Shape
from deepspark_ops.exchange.state.leases import Lease, sample_order
from deepspark_ops.exchange.transport.link import WorkerLink
from deepspark_ops.train.data.batch_source import Feeds
from deepspark_ops.train.data.data_layers import DrawnLayer, FedLayer, NetFeed, leased_layer
from deepspark_ops.train.data.sample_cache import Column

RING_BYTES = 64 * 2**20
RING_STEPS = 32
"""Steps made ahead. A call of the graph takes at most half of these steps, so the other half is made meanwhile."""
_WAIT_S = 1.0
_TEST_STREAM = 1 << 20
"""Stands for the worker in the key of a test's random draws, which do not depend on the worker."""


@dataclass
class _Use:
    """A lease and the samples used up to the end of a step."""

    lease: Lease
    consumed: int

    @property
    def is_all(self) -> bool:
        return self.consumed >= self.lease.count


Uses = Sequence[_Use]
"""The samples of the leases that a step uses."""


@dataclass(frozen=True)
class Ring:
    """Room for the batches of some steps.

    Attributes:
        capacity: Steps, an even number.
        feeds: Blob -> float32 [capacity * iter_size, *shape].
    """

    capacity: int
    feeds: Feeds

    @classmethod
    def of(cls, layers: Sequence[FedLayer], drawn: Sequence[DrawnLayer], iter_size: int) -> Ring:
        """Return room for the steps that fit in ``RING_BYTES``, 2 to ``RING_STEPS``."""
        shapes = _shapes_of(layers, drawn)
        step_bytes = 4 * iter_size * sum(prod(shape) for shape in shapes.values())
        capacity = max(2, min(RING_STEPS, RING_BYTES // max(1, step_bytes)) // 2 * 2)
        return cls(capacity, {top: _aligned((capacity * iter_size, *shape)) for top, shape in shapes.items()})


class _Stream:
    """The record order of some layers: leases in turn, cut into batches. Used by the background thread."""

    def __init__(self, name: str, layers: Sequence[FedLayer], lease: Callable[[str], Lease | None]) -> None:
        self._name = name
        self.layers = tuple(layers)
        self._leased = leased_layer(layers)
        self._n_each = [layer.batch_size // self._leased.batch_size for layer in layers]
        """Samples of each layer for a leased sample."""
        self._ask = lease
        self._lease: Lease | None = None
        self._rows: list[tuple[Column, ...]] = []
        self._used = 0

    def next_batch(self, uses: list[_Use]) -> list[tuple[Column, ...]] | None:
        """Return the columns of the next batch, a tuple per layer, and note the used samples; None at the end."""
        n_missing = self._leased.batch_size
        parts: list[list[tuple[Column, ...]]] = []
        while n_missing > 0:
            if self._lease is None and not self._open_lease():
                return None
            lease = self._lease
            assert lease is not None
            piece = min(n_missing, lease.count - self._used)
            at = self._used - lease.skip
            parts.append(
                [
                    tuple(compacted(column[at * n : (at + piece) * n]) for column in rows)
                    for rows, n in zip(self._rows, self._n_each, strict=True)
                ]
            )
            self._used += piece
            n_missing -= piece
            uses.append(_Use(lease, self._used))
            if self._used == lease.count:
                self._lease = None
        if len(parts) == 1:
            return parts[0]
        return [
            tuple(join_columns(columns) for columns in zip(*layer_parts, strict=True))
            for layer_parts in zip(*parts, strict=True)
        ]

    def _open_lease(self) -> bool:
        lease = self._ask(self._name)
        if lease is None:
            return False
        order = sample_order(lease) - lease.start
        if lease.next_shards:
            for layer in self.layers:
                layer.samples.will_read(lease.next_shards)
        position = self._leased.samples.first_of(lease.shard) + lease.start
        rows = []
        for layer, n in zip(self.layers, self._n_each, strict=True):
            columns = layer.read_wrapped(position * n, lease.count * n)
            if lease.shuffle_seed is not None or lease.skip:
                own_order = (order[:, np.newaxis] * n + np.arange(n)).ravel()
                columns = tuple(column[own_order] for column in columns)
            rows.append(columns)
        self._lease, self._rows, self._used = lease, rows, lease.skip
        return True


class LeasedBatches:
    """Batches of a worker, made ahead in a ring of steps by a background thread, or in ``take`` itself.

    ``take``, ``leases`` and ``close`` belong to the same thread; another thread may read ``test_batches`` if the thread
    of the other methods waits. Use a ``with`` block.
    """

    def __init__(
        self,
        link: WorkerLink,
        layers: Sequence[FedLayer],
        tests: Sequence[NetFeed],
        *,
        iter_size: int,
        seed: int,
        worker: int,
        first_step: int,
        drawn: Sequence[DrawnLayer] = (),
        n_steps: int | None = None,
        shared: Ring | None = None,
    ) -> None:
        """Start making batches.

        Args:
            link: Gives leases; used by both threads.
            layers: Data layers of the training net.
            tests: One per test net.
            iter_size: Passes of one step.
            seed: The run's random seed.
            worker: This worker's id.
            first_step: Steps that this worker has already made: the random draws go on from there.
            drawn: Data layers of the training net that draw at random.
            n_steps: Steps that will be taken; None for no end.
            shared: Room for the batches of all workers in this thread. Then ``take`` makes the batches, a batch is
                valid until the next ``take`` of any of these workers, and the layers' files stay open.
        """
        self._link = link
        self._tests = tuple(tests)
        self._iter_size = iter_size
        self._key = (seed, worker)
        self._own_step = first_step
        self._last_step = None if n_steps is None else first_step + n_steps
        by_stream: dict[str, list[FedLayer]] = {}
        for layer in layers:
            by_stream.setdefault(layer.stream, []).append(layer)
        self._streams = [_Stream(name, group, self._next_lease) for name, group in by_stream.items()]
        self._drawn = tuple(drawn)
        room = Ring.of(layers, drawn, iter_size) if shared is None else shared
        self._capacity, self._ring = room.capacity, room.feeds
        self._is_shared = shared is not None
        self._uses: list[list[_Use]] = [[] for _ in range(self._capacity)]
        self._own_feeds: list[Feeds | None] = [None] * self._capacity
        """Feeds of the steps with samples of other sizes than the ring's; such a step is drawn alone."""
        self._takes_sizes = any(layer.takes_sizes for layer in layers)
        self._late: tuple[Feeds, list[Uses]] | None = None
        self._open: dict[tuple[str, int], _Use] = {}
        """Used samples of the leases that the server does not know as read, by dataset and id."""
        self._turn = threading.Condition()
        self._head = self._held = self._ready = 0
        self._is_closed = self._is_over = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._produce, name="batches", daemon=True)
        if self._ring and not self._is_shared:
            self._thread.start()

    def __enter__(self) -> LeasedBatches:
        """Return itself."""
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """Close it; without an error the server gets to know the last used leases."""
        self.close()
        if error is None:
            for dataset in {use.lease.dataset for use in self._open.values() if use.is_all}:
                self._next_lease(dataset)

    def take(self, max_steps: int) -> tuple[Feeds, int]:
        """Return ``(feeds, n_steps)``: blob -> float32 [n_steps * iter_size, *shape], valid until the next call.

        ``n_steps`` is 0 without further leases: every step of the run is done.

        Raises:
            BaseException: The error of the background thread, unchanged.
        """
        feeds, uses = self.draw(max_steps)
        for used in uses:
            self.book(used)
        return feeds, len(uses)

    def draw(self, max_steps: int) -> tuple[Feeds, list[Uses]]:
        """Return the feeds of ``take``, and the samples that each step uses, for ``book`` after the step.

        May be called by another thread than the other methods; feeds are valid until the next call.
        """
        if not self._ring:
            return {}, [()] * max_steps
        if self._is_shared:
            return self._made_now(min(max_steps, self._capacity // 2))
        with self._turn:
            self._head = (self._head + self._held) % self._capacity
            self._held = 0
            self._turn.notify_all()
            n_steps = min(max_steps, self._capacity // 2, self._capacity - self._head)
            while self._ready < n_steps and self._error is None and not self._is_over:
                self._turn.wait(_WAIT_S)
            if self._error is not None:
                raise self._error
            self._held = self._n_of_one_size(self._head, min(n_steps, self._ready))
            self._ready -= self._held
            return self._steps(self._head, self._held)

    def _made_now(self, max_steps: int) -> tuple[Feeds, list[Uses]]:
        if self._late is not None:
            late, self._late = self._late, None
            return late
        n_steps = 0
        while n_steps < max_steps and self._own_step != self._last_step and self._make_step(n_steps):
            n_steps += 1
            if self._own_feeds[n_steps - 1] is not None:
                break
        n_drawn = self._n_of_one_size(0, n_steps)
        if n_drawn < n_steps:
            self._late = self._steps(n_drawn, 1)
        return self._steps(0, n_drawn)

    def _n_of_one_size(self, first: int, n_steps: int) -> int:
        """Return how many of consecutive slots can be drawn together."""
        for slot in range(first, first + n_steps):
            if self._own_feeds[slot] is not None:
                return max(1, slot - first)
        return n_steps

    def _steps(self, first: int, n_steps: int) -> tuple[Feeds, list[Uses]]:
        uses: list[Uses] = [tuple(self._uses[slot]) for slot in range(first, first + n_steps)]
        if n_steps == 1 and (own_feeds := self._own_feeds[first]) is not None:
            return own_feeds, uses
        passes = slice(first * self._iter_size, (first + n_steps) * self._iter_size)
        return {top: values[passes] for top, values in self._ring.items()}, uses

    def book(self, uses: Uses) -> None:
        """Count the samples of a step as used: from now on ``leases`` counts these samples.

        The next question for a lease of the dataset reports the used leases.
        """
        with self._turn:
            self._open |= {(use.lease.dataset, use.lease.id): use for use in uses}

    def leases(self) -> dict[str, dict[str, int]]:
        """Return the used samples of each lease that may be open: dataset -> lease id -> count, ``skip`` included."""
        counts: dict[str, dict[str, int]] = {}
        with self._turn:
            for use in self._open.values():
                counts.setdefault(use.lease.dataset, {})[str(use.lease.id)] = use.consumed
        return counts

    def _next_lease(self, dataset: str) -> Lease | None:
        """Report the used leases of a dataset and return the next lease."""
        with self._turn:
            read = [use.lease for use in self._open.values() if use.is_all and use.lease.dataset == dataset]
        lease = self._link.lease(dataset, read=read)
        # Not earlier: a snapshot's state must name a lease that the server does not know as read yet.
        with self._turn:
            for read_lease in read:
                del self._open[dataset, read_lease.id]
        return lease

    def test_batches(self, net: int, ordinal: int) -> Iterator[Feeds]:
        """Yield a test's batches: blob -> new float32 array of full shape.

        The cursor goes on from the end of test ``ordinal - 1``, as in Caffe.
        """
        test = self._tests[net]
        for batch in range(ordinal * test.n_batches, (ordinal + 1) * test.n_batches):
            read = [layer.read_wrapped(batch * layer.batch_size, layer.batch_size) for layer in test.layers]
            feeds = {top: _aligned(shape) for top, shape in _shapes_of(test.layers, test.drawn, read).items()}
            for position, (layer, columns) in enumerate(zip(test.layers, read, strict=True)):
                layer.fill(columns, feeds, (self._key[0], _TEST_STREAM, net, batch, position))
            for position, drawn in enumerate(test.drawn, start=len(test.layers)):
                drawn.fill(feeds, (self._key[0], _TEST_STREAM, net, batch, position))
            yield feeds

    def stop(self) -> None:
        """Make no more batches; a waiting ``draw`` returns with the ready batches."""
        with self._turn:
            self._is_closed = True
            self._turn.notify_all()

    def close(self) -> None:
        """End the thread and close the files; the other leases go back when the worker leaves."""
        self.stop()
        if self._is_shared:
            return
        if self._thread.is_alive():
            self._thread.join()
        for layer in self._all_layers():
            layer.samples.close()

    def _all_layers(self) -> Iterator[FedLayer]:
        for stream in self._streams:
            yield from stream.layers
        for test in self._tests:
            yield from test.layers

    def _produce(self) -> None:
        try:
            while self._own_step != self._last_step and (slot := self._free_slot()) is not None:
                if not self._make_step(slot):
                    break
                with self._turn:
                    self._ready += 1
                    self._turn.notify_all()
        except BaseException as error:  # noqa: BLE001 - the thread's outermost loop: take() raises it again
            with self._turn:
                self._error = error
        with self._turn:
            self._is_over = True
            self._turn.notify_all()

    def _free_slot(self) -> int | None:
        """Wait for room in the ring; return the slot of the next step, None once the source is closed."""
        with self._turn:
            while self._held + self._ready == self._capacity and not self._is_closed:
                self._turn.wait(_WAIT_S)
            return None if self._is_closed else (self._head + self._held + self._ready) % self._capacity

    def _make_step(self, slot: int) -> bool:
        uses: list[_Use] = []
        passes = []
        for number in range(self._iter_size):
            batches: list[list[tuple[Column, ...]]] = []
            for stream in self._streams:
                batch = stream.next_batch(uses)
                if batch is None:
                    return False
                batches.append(batch)
            targets = self._room(slot * self._iter_size + number, batches)
            for order, (stream, batch) in enumerate(zip(self._streams, batches, strict=True)):
                for position, (layer, columns) in enumerate(zip(stream.layers, batch, strict=True)):
                    layer.fill(columns, targets, (*self._key, self._own_step, number, order, position))
            for position, drawn in enumerate(self._drawn):
                drawn.fill(targets, (*self._key, self._own_step, number, len(self._streams), position))
            passes.append(targets)
        self._own_step += 1
        self._uses[slot] = uses
        self._own_feeds[slot] = self._feeds_of_other_size(passes)
        return True

    def _room(self, row: int, batches: Sequence[Sequence[tuple[Column, ...]]]) -> dict[str, npt.NDArray[np.float32]]:
        """Return the row of the ring for a pass, or arrays of its own for samples of other sizes."""
        if self._takes_sizes:
            layers = [layer for stream in self._streams for layer in stream.layers]
            shapes = _shapes_of(layers, self._drawn, [columns for batch in batches for columns in batch])
            if any(shape != self._ring[top].shape[1:] for top, shape in shapes.items()):
                return {top: _aligned(shape) for top, shape in shapes.items()}
        return {top: values[row] for top, values in self._ring.items()}

    def _feeds_of_other_size(self, passes: Sequence[dict[str, npt.NDArray[np.float32]]]) -> Feeds | None:
        """Return a step's feeds if a pass has other sizes than the ring's; objects where passes have several sizes."""
        if not self._takes_sizes or all(
            values.shape == self._ring[top].shape[1:] for targets in passes for top, values in targets.items()
        ):
            return None
        if len(passes) == 1:
            return {top: values[np.newaxis] for top, values in passes[0].items()}
        # Copies: the ring's rows are of the next steps soon.
        return {top: column_of([targets[top].copy() for targets in passes]) for top in passes[0]}


def _shapes_of(
    layers: Sequence[FedLayer], drawn: Sequence[DrawnLayer], read: Sequence[tuple[Column, ...]] = ()
) -> dict[str, Shape]:
    """Return blob -> shape of a pass; ``read``: the columns of each layer for this pass, which may have other sizes."""
    tops = [layer.shapes_of(columns) for layer, columns in zip(layers, read, strict=True)] if read else []
    tops = tops or [layer.tops for layer in layers]
    return {top: shape for layer_tops in (*tops, *(layer.tops for layer in drawn)) for top, shape in layer_tops.items()}


def _aligned(shape: Shape) -> npt.NDArray[np.float32]:
    """Return an uninitialised float32 array at a 64-byte boundary: TensorFlow reads the array without a copy."""
    size = prod(shape)
    owner: npt.NDArray[Any] = np.empty(size + 16, np.float32)
    first = (-owner.ctypes.data % 64) // 4
    return owner[first : first + size].reshape(shape)
