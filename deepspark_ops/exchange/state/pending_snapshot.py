"""The parts of a snapshot, as the exchange gathers them in the run's scratch folder for the driver."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.scratch_file import write_scratch
from deepspark_ops.exchange.state.state_file import write_state
from deepspark_ops.exchange.strategies.base import Strategy

_FOLDER = "pending"
_META = "worker_{}.json"


@dataclass(frozen=True)
class PendingSnapshot:
    """Snapshot ``iteration`` of the run whose scratch folder is ``work``.

    The center comes first, with the history where the server makes the solver's updates, then arrays and meta of every
    live worker, last ``complete``: ``{"iteration", "applied", "workers": {id: meta}, "leases": {dataset: state}}``,
    ``applied`` as in ``ExchangeStatus``, when the center was copied.
    """

    work: Path
    iteration: int

    @property
    def folder(self) -> Path:
        """Where all parts lie."""
        return self.work / _FOLDER / f"iter_{self.iteration}"

    @property
    def center(self) -> Path:
        """The center, raw little-endian float32."""
        return self.folder / "center.f32"

    @property
    def history(self) -> Path:
        """The solver's history beside the center, its slots one after another, raw little-endian float32."""
        return self.folder / "history.f32"

    @property
    def server(self) -> Path:
        """What else the server knows of the copied center, ``.npz``: ``applied``, a whole number."""
        return self.folder / "server.npz"

    @property
    def complete(self) -> Path:
        """Is there once every part is."""
        return self.folder / "complete.json"

    def arrays(self, worker: int) -> Path:
        """The arrays of a worker's state, ``.npz``."""
        return self.folder / f"worker_{worker}.npz"

    def write_center(self, center: Center, strategy: Strategy, applied: int) -> None:
        """Copy the center, which has taken ``applied`` exchanges, and the history if the strategy keeps it there."""
        write_state(self.server, {"applied": np.array(applied, np.int64)})
        center.write_snapshot(self.center)
        if strategy.history_at_center:
            with write_scratch(self.history) as temporary:
                np.stack(center.extras[strategy.server_vectors :]).tofile(temporary)

    def write_meta(self, worker: int, meta: Mapping[str, Any]) -> None:
        """Put down what belongs to a worker's arrays."""
        _write_json(self.folder / _META.format(worker), meta)

    def metas(self) -> dict[int, dict[str, Any]]:
        """Return what ``write_meta`` has put down, by worker."""
        found = self.folder.glob(_META.format("*"))
        return {int(path.stem.rpartition("_")[2]): json.loads(path.read_text(encoding="utf-8")) for path in found}

    def write_complete(self, metas: Mapping[int, Mapping[str, Any]], leases: Mapping[str, Any]) -> None:
        """Say that nothing is missing any more."""
        with np.load(self.server, allow_pickle=False) as server:
            applied = int(server["applied"])
        found = {"iteration": self.iteration, "applied": applied, "workers": metas, "leases": leases}
        _write_json(self.complete, found)

    def remove(self) -> None:
        """Remove every part."""
        shutil.rmtree(self.folder)


def forget_pending(work: Path) -> None:
    """Remove the parts of every snapshot."""
    shutil.rmtree(work / _FOLDER, ignore_errors=True)


def consumed_samples(metas: Mapping[int, Mapping[str, Any]], dataset: str) -> dict[int, int]:
    """Gather ``{"leases": {dataset: {lease id: samples}}}`` of all workers' metas."""
    consumed: dict[int, int] = {}
    for meta in metas.values():
        consumed.update({int(i): int(n) for i, n in meta.get("leases", {}).get(dataset, {}).items()})
    return consumed


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    with write_scratch(path) as temporary:
        temporary.write_text(json.dumps(value), encoding="utf-8")
