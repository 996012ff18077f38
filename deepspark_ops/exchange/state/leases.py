"""Leases of samples: which worker reads which pieces of shards, by epoch. Pieces of lost workers are leased again."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import itemgetter
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import ConfigError

Order = Literal["file", "shuffled"]
_KEPT_ORDERS = 3
MOST_MIXED_SHARDS = 128
"""A lease names the shards of up to two such groups, in about a kilobyte."""


@dataclass(frozen=True)
class DatasetOrder:
    """The reading order of a dataset.

    Attributes:
        shard_samples: Samples per shard, in the manifest's order.
        order: ``file``: pieces in order, samples in order, again from the start (as Caffe). ``shuffled``: pieces and
            the samples inside a piece in an order that depends only on (seed, epoch).
        seed: Decides shuffled orders.
        piece_samples: Most samples of one lease.
        mixed_shards: Shuffled: the pieces of so many shards, drawn at random, are given out before those of the next
            ones, so that a host needs room for few shards at a time; 0: the pieces of all shards are mixed.
    """

    shard_samples: tuple[int, ...]
    order: Order = "file"
    seed: int = 0
    piece_samples: int = 1_024
    mixed_shards: int = 0

    def __post_init__(self) -> None:
        """Refuse an order without samples.

        Raises:
            ConfigError: No sample at all, an empty piece or an unknown order.
        """
        if sum(self.shard_samples) < 1 or min(self.shard_samples) < 0:
            msg = f"shard_samples={list(self.shard_samples)[:8]}: a dataset needs at least one sample"
            raise ConfigError(msg)
        if self.piece_samples < 1:
            msg = f"piece_samples={self.piece_samples}: must be at least 1"
            raise ConfigError(msg)
        if not 0 <= self.mixed_shards <= MOST_MIXED_SHARDS:
            msg = f"mixed_shards={self.mixed_shards}: must be 1 to {MOST_MIXED_SHARDS}, or 0 for all"
            raise ConfigError(msg)
        if self.order not in ("file", "shuffled"):
            msg = f'order="{self.order}"; allowed: file, shuffled'
            raise ConfigError(msg)

    @property
    def n_samples(self) -> int:
        """Samples of one epoch."""
        return sum(self.shard_samples)


@dataclass(frozen=True)
class Lease:
    """A piece of a shard, to be read by one worker.

    Attributes:
        epoch: Pass over the dataset, from 0.
        shard: Position of the shard in the manifest.
        start: First sample of the piece in the shard.
        count: Samples of the piece.
        dataset: Name of the dataset.
        skip: The first ``skip`` samples, in reading order, were used before the run was interrupted: leave them out.
        shuffle_seed: None: samples in file order; else see ``sample_order``.
        id: Names the lease.
        next_shards: Where few shards are mixed, the ones that the next pieces are of, up to the end of the next group,
            in the order of their use: worth fetching now.
    """

    epoch: int
    shard: int
    start: int
    count: int
    dataset: str = "train"
    skip: int = 0
    shuffle_seed: int | None = None
    id: int = 0
    next_shards: tuple[int, ...] = ()

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Lease:
        """Return the lease of plain JSON values."""
        return cls(**{**plain, "next_shards": tuple(plain["next_shards"])})


def sample_order(lease: Lease) -> npt.NDArray[np.int64]:
    """Return the positions of a lease's samples in the shard, in reading order, ``skip`` left out."""
    positions = np.arange(lease.start, lease.start + lease.count, dtype=np.int64)
    if lease.shuffle_seed is not None:
        key = (lease.shuffle_seed, lease.epoch, lease.shard, lease.start)
        positions = np.random.default_rng(key).permutation(positions)
    return positions[lease.skip :]


@dataclass(frozen=True)
class EpochReport:
    """An epoch of a dataset, read to the end."""

    dataset: str
    epoch: int
    samples: int
    reissued_samples: int


@dataclass
class _Piece:
    """A piece of a worker, or a piece without a worker yet; ``position`` counts in the epoch."""

    epoch: int
    position: int
    skip: int


@dataclass
class _Progress:
    """Counts of an open epoch."""

    pieces: int = 0
    samples: int = 0
    reissued_samples: int = 0


@dataclass(frozen=True)
class _EpochOrder:
    """The pieces of an epoch in the order of their leases; ``groups``, ascending, where few shards are mixed."""

    pieces: Sequence[int]
    groups: Sequence[int] = ()


@dataclass
class _Position:
    epoch: int = 0
    next: int = 0
    returned: list[tuple[int, int, int]] = field(default_factory=list)
    progress: dict[int, _Progress] = field(default_factory=dict)


class DataLeases:
    """The leases of one dataset. Not thread-safe: the coordinator holds its lock around every call.

    Within an epoch every piece is completed exactly once. Returned pieces are leased first, in reading order. So a
    single worker in file order reads every sample in order, epoch after epoch.
    """

    def __init__(self, name: str, dataset: DatasetOrder) -> None:
        """Start at the first piece of epoch 0."""
        self._name = name
        self._dataset = dataset
        self._pieces = tuple(_cut_shards(dataset))
        self._position = _Position()
        self._mixed_before: list[tuple[int, int]] = []
        self._orders: dict[int, _EpochOrder] = {}
        self._open: dict[int, dict[int, _Piece]] = {}  # worker -> lease id -> piece
        self._next_id = 1

    def lease(self, worker: int) -> Lease:
        """Lease the next piece to ``worker``; the next epoch follows without a pause."""
        at = self._position
        if at.returned:
            piece = _Piece(*at.returned.pop(0))
        else:
            if at.next == len(self._pieces):
                at.epoch, at.next = at.epoch + 1, 0
            piece = _Piece(at.epoch, at.next, 0)
            at.next += 1
        lease_id, self._next_id = self._next_id, self._next_id + 1
        self._open.setdefault(worker, {})[lease_id] = piece
        shard, start, count = self._pieces[self._order(piece.epoch).pieces[piece.position]]
        seed = self._dataset.seed if self._dataset.order == "shuffled" else None
        return Lease(piece.epoch, shard, start, count, self._name, piece.skip, seed, lease_id, self._next_shards())

    def complete(self, worker: int, lease_id: int) -> EpochReport | None:
        """Note a lease as read.

        Args:
            worker: Reader of the lease.
            lease_id: Number from ``lease``.

        Returns:
            The epoch's report if this was its last piece. A lease that was lost meanwhile changes nothing.
        """
        piece = self._open.get(worker, {}).pop(lease_id, None)
        return None if piece is None else self._completed(piece, self._position.progress)

    def release(self, worker: int) -> None:
        """Take back every lease of a lost worker."""
        for piece in self._open.pop(worker, {}).values():
            progress = self._position.progress.setdefault(piece.epoch, _Progress())
            progress.reissued_samples += self._count(piece) - piece.skip
            bisect.insort(self._position.returned, (piece.epoch, piece.position, piece.skip))

    def to_state(self) -> dict[str, Any]:
        """Return all variables, holders of leases included, as plain JSON values."""
        return {
            "dataset": asdict(self._dataset),
            "epoch": self._position.epoch,
            "next": self._position.next,
            "returned": list(self._position.returned),
            "progress": _plain(self._position.progress),
            "mixed_before": self._mixed_before,
            "next_id": self._next_id,
            "open": sorted(
                [lease_id, worker, {**vars(piece)}]
                for worker, pieces in self._open.items()
                for lease_id, piece in pieces.items()
            ),
        }

    def note_read(self, state: Mapping[str, Any], lease_id: int) -> None:
        """Note a piece as read in an earlier ``to_state`` of this run, if the lease is open there.

        Args:
            state: Written in place.
            lease_id: As given by ``lease``.
        """
        position = bisect.bisect_left(state["open"], lease_id, key=itemgetter(0))
        for open_id, _, piece in state["open"][position : position + 1]:
            if open_id == lease_id:
                piece["skip"] = self._count(_Piece(**piece))

    def retry_state(self, state: Mapping[str, Any], consumed: Mapping[int, int]) -> dict[str, Any]:
        """Return a ``to_state`` of this run without open leases.

        Args:
            state: Open leases in it become pieces to be given again.
            consumed: Lease id -> samples used by then, ``skip`` included: they are given again from there.
        """
        returned = [tuple(piece) for piece in state["returned"]]
        progress = _progress_of(state)
        for lease_id, _, plain in state["open"]:
            piece = _Piece(**plain)
            skip = max(piece.skip, consumed.get(lease_id, piece.skip))
            if skip < self._count(piece):
                returned.append((piece.epoch, piece.position, skip))
            else:
                self._completed(piece, progress)
        return {**state, "open": [], "returned": sorted(returned), "progress": _plain(progress)}

    def restore(self, state: Mapping[str, Any]) -> bool:
        """Take the variables that ``to_state`` returned.

        If the state mixed another number of shards, its epoch continues in its own order.

        Returns:
            False, and nothing changes, if the state is of other data: another number of samples, order, seed or
            piece size.
        """
        saved_order = DatasetOrder(**{**state["dataset"], "shard_samples": tuple(state["dataset"]["shard_samples"])})
        if replace(saved_order, mixed_shards=self._dataset.mixed_shards) != self._dataset:
            return False
        self._mixed_before = [(epoch, mixed) for epoch, mixed in state.get("mixed_before", ())]
        if saved_order.mixed_shards != self._dataset.mixed_shards:
            self._mixed_before.append((state["epoch"], saved_order.mixed_shards))
        returned = [(epoch, position, skip) for epoch, position, skip in state["returned"]]
        self._position = _Position(state["epoch"], state["next"], returned, _progress_of(state))
        self._orders.clear()
        self._open = {}
        for lease_id, worker, piece in state["open"]:
            self._open.setdefault(worker, {})[lease_id] = _Piece(**piece)
        self._next_id = state["next_id"]
        return True

    def _completed(self, piece: _Piece, progress: dict[int, _Progress]) -> EpochReport | None:
        """Count a piece as read in the progress of its epoch; return the report of an epoch that ends."""
        counts = progress.setdefault(piece.epoch, _Progress())
        counts.pieces += 1
        counts.samples += self._count(piece)
        if counts.pieces < len(self._pieces):
            return None
        del progress[piece.epoch]
        return EpochReport(self._name, piece.epoch, counts.samples, counts.reissued_samples)

    def _count(self, piece: _Piece) -> int:
        return self._pieces[self._order(piece.epoch).pieces[piece.position]][2]

    def _order(self, epoch: int) -> _EpochOrder:
        if epoch not in self._orders:
            if len(self._orders) >= _KEPT_ORDERS:
                del self._orders[min(self._orders)]
            self._orders[epoch] = self._made_order(epoch)
        return self._orders[epoch]

    def _made_order(self, epoch: int) -> _EpochOrder:
        if self._dataset.order == "file":
            return _EpochOrder(range(len(self._pieces)))
        rng = np.random.default_rng((self._dataset.seed, epoch))
        order = rng.permutation(len(self._pieces))
        # An epoch from before a change of the number keeps its order.
        mixed = next((mixed for last, mixed in self._mixed_before if epoch <= last), self._dataset.mixed_shards)
        if not mixed:
            return _EpochOrder(order.tolist())
        group_of_shard = rng.permutation(len(self._dataset.shard_samples)) // mixed
        groups = group_of_shard[[self._pieces[piece][0] for piece in order]]
        by_group = np.argsort(groups, kind="stable")  # stable: the order within a group stays random
        return _EpochOrder(order[by_group].tolist(), groups[by_group].tolist())

    def _next_shards(self) -> tuple[int, ...]:
        """Return the shards from the last leased piece to the end of the next group, without repetition."""
        at, order = self._position, self._order(self._position.epoch)
        if not order.groups:
            return ()
        first = max(0, at.next - 1)
        last_group = order.groups[first] + 1
        positions = list(order.pieces[first : bisect.bisect_right(order.groups, last_group)])
        if last_group > order.groups[-1] and (next_order := self._order(at.epoch + 1)).groups:
            positions += next_order.pieces[: bisect.bisect_right(next_order.groups, next_order.groups[0])]
        return tuple(dict.fromkeys(self._pieces[piece][0] for piece in positions))


def _plain(progress: Mapping[int, _Progress]) -> list[list[Any]]:
    """Return JSON values; ``_progress_of`` is the inverse."""
    return [[epoch, {**vars(counts)}] for epoch, counts in progress.items()]


def _progress_of(state: Mapping[str, Any]) -> dict[int, _Progress]:
    return {epoch: _Progress(**counts) for epoch, counts in state["progress"]}


def _cut_shards(dataset: DatasetOrder) -> list[tuple[int, int, int]]:
    """Return (shard, start, count) of every piece, in file order."""
    step = dataset.piece_samples
    return [
        (shard, start, min(step, samples - start))
        for shard, samples in enumerate(dataset.shard_samples)
        for start in range(0, samples, step)
    ]
