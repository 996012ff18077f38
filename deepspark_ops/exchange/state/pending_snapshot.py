"""The parts of a snapshot in the run's scratch folder: the exchange writes the parts, the driver reads them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deepspark_ops.exchange.center.buffers import aligned_vector
from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.chunks import Chunks
from deepspark_ops.exchange.center.pushes import locked_positions, settle_unfinished
from deepspark_ops.exchange.scratch_file import write_scratch
from deepspark_ops.exchange.strategies.base import Strategy
from deepspark_ops.param_vector import Vector

_FOLDER = "pending"
_META = "worker_{}.json"


@dataclass(frozen=True, eq=False)
class ServerState:
    """The strategy's server vectors in a snapshot, see ``Strategy.saved_vectors``. The caller owns the arrays.

    Attributes:
        strategy: Name of the strategy.
        counts: Pushes of each chunk that the vectors hold and the center does not, (n_chunks,), uint64.
        vectors: (n_vectors, n_params), float32.
    """

    strategy: str
    counts: npt.NDArray[np.uint64]
    vectors: npt.NDArray[np.float32]

    def restore(self, center: Center, strategy: Strategy) -> str | None:
        """Write the vectors into the center of a resumed run, before a worker joins.

        Returns:
            A note for the user where the vectors do not fit and are left out; else None.
        """
        saved = strategy.saved_vectors
        same_counts = self.counts.shape == center.counts.shape or strategy.round == "all"
        if self.strategy != strategy.name or self.vectors.shape != (len(saved), center.n_params) or not same_counts:
            return (
                f"what the server of strategy {self.strategy} had gathered beside the center is left out:"
                f" strategy {strategy.name} runs now, or its options have changed"
            )
        for position, values in zip(saved, self.vectors, strict=True):
            center.extras[position][:] = values
        if strategy.round != "all":  # a round's sum is not saved: workers repeat its pushes
            center.counts[:] = self.counts
        return None


@dataclass(frozen=True, eq=False)
class CenterCopy:
    """A copy of the center and of the strategy's saved vectors at one moment.

    Attributes:
        applied: Exchanges that the center had taken, as in ``ExchangeStatus``.
        strategy: Name of the strategy.
        counts: Pushes of each chunk that ``vectors`` hold and the center does not; empty without such vectors.
        center: (n_params,), float32.
        vectors: The strategy's saved vectors, each (n_params,), float32.
        history: The solver's vectors beside the center, each (n_params,), float32.
    """

    applied: int
    strategy: str
    counts: list[int]
    center: Vector
    vectors: list[Vector]
    history: list[Vector]

    @classmethod
    def of(cls, center: Center, chunks: Chunks, applied: int) -> CenterCopy:
        """Copy a center that has taken ``applied`` exchanges.

        Where the strategy saves vectors, a chunk of center, vectors and counts is copied at one moment.

        Raises:
            ExchangeUnavailable: A chunk's lock was not to be had.
        """
        strategy = chunks.strategy
        extras = center.extras[strategy.server_vectors :] if strategy.history_at_center else ()
        history = [extra.copy() for extra in extras]
        if not strategy.saved_vectors:
            return cls(applied, strategy.name, [], center.snapshot(), [], history)
        sources = [center.vector, *(center.extras[position] for position in strategy.saved_vectors)]
        copies = [aligned_vector(center.n_params) for _ in sources]
        counts = []
        for position in locked_positions(center, range(len(chunks.spans))):
            if center.unfinished[position]:
                settle_unfinished(center, chunks, position)
            for copy, source in zip(copies, sources, strict=True):
                np.copyto(copy[chunks.spans[position]], source[chunks.spans[position]])
            counts.append(int(center.counts[position]))
        return cls(applied, strategy.name, counts, copies[0], copies[1:], history)

    @property
    def nbytes(self) -> int:
        """Bytes of all vectors."""
        return self.center.nbytes * (1 + len(self.vectors) + len(self.history))


@dataclass(frozen=True)
class PendingSnapshot:
    """Snapshot ``iteration`` of the run whose scratch folder is ``work``.

    The center is written first, with the strategy's saved vectors, and with the history where the server makes the
    solver's updates. Arrays and meta of every live worker follow. ``complete`` is last:
    ``{"iteration", "applied", "workers": {id: meta}, "leases": {dataset: state}}``, with ``applied`` of the time of the
    center's copy, see ``ExchangeStatus``.
    """

    work: Path
    iteration: int

    @property
    def folder(self) -> Path:
        """Folder of all parts."""
        return self.work / _FOLDER / f"iter_{self.iteration}"

    @property
    def center(self) -> Path:
        """The center, raw little-endian float32."""
        return self.folder / "center.f32"

    @property
    def history(self) -> Path:
        """The solver's history beside the center, its vectors one after another, raw little-endian float32."""
        return self.folder / "history.f32"

    @property
    def server(self) -> Path:
        """State of the server at the center's copy: ``{"applied", "strategy", "counts"}``."""
        return self.folder / "server.json"

    def vector(self, index: int) -> Path:
        """The ``index``-th of the strategy's saved vectors, raw little-endian float32."""
        return self.folder / f"server_{index}.f32"

    @property
    def complete(self) -> Path:
        """Written last: exists only with all other parts."""
        return self.folder / "complete.json"

    def arrays(self, worker: int) -> Path:
        """The arrays of a worker's state, ``.npz``."""
        return self.folder / f"worker_{worker}.npz"

    def write_center(self, copy: CenterCopy) -> None:
        """Write a copy of center and saved vectors.

        Raises:
            OSError: The disk is full.
        """
        for path, vectors in (
            *((self.vector(index), [vector]) for index, vector in enumerate(copy.vectors)),
            *([(self.history, copy.history)] if copy.history else []),
            (self.center, [copy.center]),
        ):
            with write_scratch(path) as temporary, temporary.open("wb") as file:
                for vector in vectors:
                    vector.tofile(file)
        _write_json(self.server, {"applied": copy.applied, "strategy": copy.strategy, "counts": copy.counts})

    def server_state(self) -> ServerState | None:
        """Return the strategy's saved vectors; None without such vectors."""
        plain = json.loads(self.server.read_text(encoding="utf-8"))
        if not plain["counts"]:
            return None
        paths = sorted(self.folder.glob("server_*.f32"), key=lambda path: int(path.stem.rpartition("_")[2]))
        vectors = np.stack([np.fromfile(path, np.float32) for path in paths])
        return ServerState(plain["strategy"], np.array(plain["counts"], np.uint64), vectors)

    def write_meta(self, worker: int, meta: Mapping[str, Any]) -> None:
        """Write the JSON values beside a worker's arrays."""
        _write_json(self.folder / _META.format(worker), meta)

    def metas(self) -> dict[int, dict[str, Any]]:
        """Return the values of ``write_meta``, by worker."""
        paths = self.folder.glob(_META.format("*"))
        return {int(path.stem.rpartition("_")[2]): json.loads(path.read_text(encoding="utf-8")) for path in paths}

    def write_complete(self, metas: Mapping[int, Mapping[str, Any]], leases: Mapping[str, Any]) -> None:
        """Mark the snapshot as complete."""
        applied = json.loads(self.server.read_text(encoding="utf-8"))["applied"]
        contents = {"iteration": self.iteration, "applied": applied, "workers": metas, "leases": leases}
        _write_json(self.complete, contents)

    def remove(self) -> None:
        """Remove every part."""
        shutil.rmtree(self.folder)


@dataclass(frozen=True)
class Waiting:
    """The snapshots with parts in a scratch folder, complete or not.

    Attributes:
        count: Number of snapshots.
        size: Size of all files, bytes.
    """

    count: int
    size: int

    def __add__(self, other: Waiting) -> Waiting:
        """Return the sums of count and size."""
        return Waiting(self.count + other.count, self.size + other.size)


def waiting_snapshots(work: Path) -> Waiting:
    """Return count and size of the waiting snapshots; parts that the driver removes meanwhile may count."""
    count = size = 0
    for folder in (work / _FOLDER).glob("iter_*"):
        count += 1
        with suppress(FileNotFoundError):
            size += sum(path.stat().st_size for path in folder.iterdir())
    return Waiting(count, size)


def forget_pending(work: Path) -> None:
    """Remove the parts of every snapshot."""
    shutil.rmtree(work / _FOLDER, ignore_errors=True)


def consumed_samples(metas: Mapping[int, Mapping[str, Any]], dataset: str) -> dict[int, int]:
    """Return the consumed samples by lease, from ``{"leases": {dataset: {lease id: samples}}}`` of all metas."""
    consumed: dict[int, int] = {}
    for meta in metas.values():
        consumed.update({int(i): int(n) for i, n in meta.get("leases", {}).get(dataset, {}).items()})
    return consumed


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    with write_scratch(path) as temporary:
        temporary.write_text(json.dumps(value), encoding="utf-8")
