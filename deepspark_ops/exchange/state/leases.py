"""Which worker reads which samples: pieces of shards, leased per epoch, given again when a worker is lost."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import ConfigError

Order = Literal["file", "shuffled"]


@dataclass(frozen=True)
class DatasetOrder:
    """How one dataset is read.

    Attributes:
        shard_samples: Samples per shard, in the manifest's order.
        order: ``file``: pieces in order, samples in order, again from the start (as Caffe). ``shuffled``: pieces and
            the samples inside a piece in an order that depends only on (seed, epoch).
        seed: Decides shuffled orders.
        piece_samples: Most samples of one lease.
    """

    shard_samples: tuple[int, ...]
    order: Order = "file"
    seed: int = 0
    piece_samples: int = 1_024

    def __post_init__(self) -> None:
        """Refuse what cannot be read from.

        Raises:
            ConfigError: No sample at all, an empty piece or an unknown order.
        """
        if sum(self.shard_samples) < 1 or min(self.shard_samples) < 0:
            msg = f"shard_samples={list(self.shard_samples)[:8]}: a dataset needs at least one sample"
            raise ConfigError(msg)
        if self.piece_samples < 1:
            msg = f"piece_samples={self.piece_samples}: must be at least 1"
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
        skip: The first ``skip`` samples, in reading order, were used before the run was interrupted: leave them out
            (it may be all of them).
        shuffle_seed: None: samples in file order; else see ``sample_order``.
        id: Names the lease.
    """

    epoch: int
    shard: int
    start: int
    count: int
    dataset: str = "train"
    skip: int = 0
    shuffle_seed: int | None = None
    id: int = 0


def sample_order(lease: Lease) -> npt.NDArray[np.int64]:
    """Return the positions of a lease's samples in the shard, in reading order, ``skip`` left out."""
    positions = np.arange(lease.start, lease.start + lease.count, dtype=np.int64)
    if lease.shuffle_seed is not None:
        key = (lease.shuffle_seed, lease.epoch, lease.shard, lease.start)
        positions = np.random.default_rng(key).permutation(positions)
    return positions[lease.skip :]


@dataclass(frozen=True)
class EpochReport:
    """An epoch of a dataset of which every piece has been read."""

    dataset: str
    epoch: int
    samples: int
    reissued_samples: int


@dataclass
class _Piece:
    """A piece that is out or waits to be given again; ``position`` is its place in its epoch."""

    epoch: int
    position: int
    skip: int


@dataclass
class _Progress:
    """Counts of one epoch that is not over."""

    pieces: int = 0
    samples: int = 0
    reissued_samples: int = 0


@dataclass
class _Position:
    epoch: int = 0
    next: int = 0
    returned: list[tuple[int, int, int]] = field(default_factory=list)
    progress: dict[int, _Progress] = field(default_factory=dict)


class DataLeases:
    """The leases of one dataset. Not thread-safe: the coordinator holds its lock around every call.

    Promised: within an epoch every piece is completed exactly once; pieces that came back are given out first, in
    reading order, so one worker in file order sees every sample in order, epoch after epoch.
    """

    def __init__(self, name: str, dataset: DatasetOrder) -> None:
        """Begin at the first piece of epoch 0."""
        self._name = name
        self._dataset = dataset
        self._pieces = tuple(_cut_shards(dataset))
        self._position = _Position()
        self._order = self._epoch_order(0)
        self._open: dict[int, tuple[int, _Piece]] = {}
        self._next_id = 1

    def lease(self, worker: int) -> Lease:
        """Give the next piece to ``worker``; an epoch follows the other without a pause."""
        at = self._position
        if at.returned:
            piece = _Piece(*at.returned.pop(0))
        else:
            if at.next == len(self._pieces):
                at.epoch, at.next = at.epoch + 1, 0
                self._order = self._epoch_order(at.epoch)
            piece = _Piece(at.epoch, at.next, 0)
            at.next += 1
        lease_id, self._next_id = self._next_id, self._next_id + 1
        self._open[lease_id] = (worker, piece)
        order = self._order if piece.epoch == at.epoch else self._epoch_order(piece.epoch)
        shard, start, count = self._pieces[order[piece.position]]
        seed = self._dataset.seed if self._dataset.order == "shuffled" else None
        return Lease(piece.epoch, shard, start, count, self._name, piece.skip, seed, lease_id)

    def complete(self, worker: int, lease_id: int, consumed: int | None = None) -> EpochReport | None:
        """Note a lease as read.

        Args:
            worker: Who read it.
            lease_id: As given by ``lease``.
            consumed: Samples of the piece used, ``skip`` included; None: all. The rest is leased again.

        Returns:
            The epoch's report if this was its last piece. A lease that was lost meanwhile changes nothing.
        """
        holder, piece = self._open.get(lease_id, (None, None))
        if piece is None or holder != worker:
            return None
        del self._open[lease_id]
        count = self._count(piece)
        if consumed is not None and consumed < count:
            self._return(piece, max(piece.skip, consumed))
            return None
        progress = self._position.progress.setdefault(piece.epoch, _Progress())
        progress.pieces += 1
        progress.samples += count
        if progress.pieces < len(self._pieces):
            return None
        del self._position.progress[piece.epoch]
        return EpochReport(self._name, piece.epoch, progress.samples, progress.reissued_samples)

    def release(self, worker: int) -> None:
        """Take back every lease of a lost worker."""
        for lease_id in [i for i, (holder, _) in self._open.items() if holder == worker]:
            _, piece = self._open.pop(lease_id)
            progress = self._position.progress.setdefault(piece.epoch, _Progress())
            progress.reissued_samples += self._count(piece) - piece.skip
            self._return(piece, piece.skip)

    def to_state(self, consumed: Mapping[int, int] | None = None) -> dict[str, Any]:
        """Return everything as plain JSON values.

        Args:
            consumed: For a snapshot: lease id -> samples used so far, ``skip`` included. Given, open leases are
                written as pieces to be given again from there, for a run in which no worker holds a lease. Not given,
                the state is for the same run: who holds what stays.
        """
        state: dict[str, Any] = {
            "dataset": asdict(self._dataset),
            "epoch": self._position.epoch,
            "next": self._position.next,
            "returned": list(self._position.returned),
            "progress": [[epoch, asdict(p)] for epoch, p in self._position.progress.items()],
            "next_id": self._next_id,
            "open": [],
        }
        for lease_id, (worker, piece) in self._open.items():
            if consumed is None:
                state["open"].append([lease_id, worker, asdict(piece)])
            else:
                skip = min(self._count(piece), max(piece.skip, consumed.get(lease_id, piece.skip)))
                state["returned"].append((piece.epoch, piece.position, skip))
        state["returned"].sort()
        return state

    def restore(self, state: Mapping[str, Any]) -> bool:
        """Become what ``to_state`` described.

        Returns:
            False, and nothing changes, if the state is of other data: another number of samples, order, seed or
            piece size.
        """
        theirs = dict(state["dataset"], shard_samples=tuple(state["dataset"]["shard_samples"]))
        if theirs != asdict(self._dataset):
            return False
        progress = {epoch: _Progress(**counts) for epoch, counts in state["progress"]}
        returned = [(epoch, position, skip) for epoch, position, skip in state["returned"]]
        self._position = _Position(state["epoch"], state["next"], returned, progress)
        self._order = self._epoch_order(self._position.epoch)
        self._open = {lease_id: (worker, _Piece(**piece)) for lease_id, worker, piece in state["open"]}
        self._next_id = state["next_id"]
        return True

    def _return(self, piece: _Piece, skip: int) -> None:
        bisect.insort(self._position.returned, (piece.epoch, piece.position, skip))

    def _count(self, piece: _Piece) -> int:
        order = self._order if piece.epoch == self._position.epoch else self._epoch_order(piece.epoch)
        return self._pieces[order[piece.position]][2]

    def _epoch_order(self, epoch: int) -> list[int]:
        if self._dataset.order == "file":
            return list(range(len(self._pieces)))
        rng = np.random.default_rng((self._dataset.seed, epoch))
        return [int(i) for i in rng.permutation(len(self._pieces))]


def _cut_shards(dataset: DatasetOrder) -> list[tuple[int, int, int]]:
    """Return (shard, start, count) of every piece, in file order."""
    step = dataset.piece_samples
    return [
        (shard, start, min(step, samples - start))
        for shard, samples in enumerate(dataset.shard_samples)
        for start in range(0, samples, step)
    ]
