"""What each worker has pushed and acknowledged, noted where a SIGKILL cannot take it away; compared at the end.

For strategies whose center adds what is pushed. A push is noted before the push leaves the worker, the whole exchange
as done after its end. An exchange interrupted by a death is known to be open: each chunk may be in the center once or
not at all. Everything else must be there exactly once.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from deepspark_ops.exchange.client import SocketLink
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.state.grants import Grant, GrantAnswer
from deepspark_ops.exchange.strategies.base import ExchangeContext
from deepspark_ops.exchange.transport.connection import ExchangeAddress
from deepspark_ops.exchange.transport.link import ExchangeReport, Welcome
from deepspark_ops.param_vector import Vector

_OPEN = 2
"""Bit of the state beside the number of the valid sum: an exchange is open."""


class NotedLink(SocketLink):
    """A worker's link with a ledger, in files below ``folder``."""

    def __init__(self, address: ExchangeAddress, folder: Path, name: str, *, confirms_later: bool) -> None:
        super().__init__(address, confirms_later=confirms_later)
        self._path = folder / f"{name}-{os.getpid()}-{os.urandom(4).hex()}"
        self._grants = os.open(self._path.with_suffix(".grants"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._pushes: PushLedger | None = None
        self._base = 0
        self._is_open = False
        self._ending = threading.Lock()
        self._n_joins = 0

    def join(self, worker: int) -> Welcome:
        welcome = super().join(worker)
        plan = self._joined().plan
        self._is_open = False
        if plan.strategy.pushes_add_up:
            # A file of its own for each join: an exchange that the server gave up stays open in the file before.
            self._n_joins += 1
            path = self._path.with_name(f"{self._path.name}-{self._n_joins}.pushes")
            self._pushes = PushLedger(path, welcome.n_params)
            plain = plan.strategy.worker_chunk

            def noted(
                local: Vector, center: Vector, new: Vector, push: Vector, start: Vector, context: ExchangeContext
            ) -> None:
                plain(local, center, new, push, start, context)
                assert self._pushes is not None
                self._pushes.note((local.ctypes.data - self._base) // 4, push)

            object.__setattr__(plan.strategy, "worker_chunk", noted)
        return welcome

    def request_grant(self, want: int, *, held: Grant | None = None, done: Sequence[Grant] = ()) -> GrantAnswer:
        for grant in done:  # in a message of its own, whose answer says whether the grant counts
            self.acknowledge(grant)
        is_answered_now = self._is_open  # an exchange that ends meanwhile is answered later
        answer = super().request_grant(want, held=held)
        if is_answered_now:
            self._end()
        if isinstance(answer, Grant) and answer.count:
            self._write("granted", answer)
        return answer

    def acknowledge(self, grant: Grant) -> bool:
        is_answered_now = self._is_open
        counts = super().acknowledge(grant)
        if is_answered_now:
            self._end()
        if counts and grant.count:
            self._write("done", grant)
        return counts

    def exchange(
        self, local: Vector, *, measure_distance: bool = False, note: RoundNote | None = None
    ) -> tuple[Vector, ExchangeReport]:
        self._base = local.ctypes.data
        if self._pushes is None:
            return super().exchange(local, measure_distance=measure_distance, note=note)
        with self._lock:
            self._server.settle()
        self._end()
        self._pushes.begin()
        answer = super().exchange(local, measure_distance=measure_distance, note=note)
        self._is_open = True
        if answer[1].transport == "shm":
            self._end()
        return answer

    def close(self) -> None:
        super().close()
        if self._grants >= 0:
            os.close(self._grants)
            self._grants = -1

    def _end(self) -> None:
        """Note the end of an exchange: in shared memory at once, by socket after the next answer of the server."""
        with self._ending:  # requests of two threads may see the answer
            if self._is_open and self._pushes is not None:
                self._is_open = False
                self._pushes.end()

    def _write(self, status: str, grant: Grant) -> None:
        os.write(self._grants, json.dumps([status, grant.start, grant.stop]).encode() + b"\n")


class PushLedger:
    """Sum of the pushes of a process's ended exchanges, and the pushes of the open exchange; in a mapped file.

    Two sums take turns. A store of 8 bytes says which sum is valid and whether an exchange is open, so a kill between
    any two instructions leaves a true account.
    """

    def __init__(self, path: Path, n_params: int) -> None:
        """Make the file, or open the file of an earlier process."""
        is_new = not path.exists()
        raw = np.memmap(path, np.uint8, "w+" if is_new else "r+", shape=(8 + 20 * n_params,))
        self._state = raw[:8].view(np.int64)
        self._sums = raw[8 : 8 + 16 * n_params].view(np.float64).reshape(2, n_params)
        self._pending = raw[8 + 16 * n_params :].view(np.float32)

    def begin(self) -> None:
        self._pending.fill(0.0)
        self._state[0] |= _OPEN

    def note(self, offset: int, push: Vector) -> None:
        self._pending[offset : offset + len(push)] = push

    def end(self) -> None:
        valid = int(self._state[0]) & 1
        np.add(self._sums[valid], self._pending, out=self._sums[1 - valid])
        self._state[0] = 1 - valid

    def total(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.array(self._sums[int(self._state[0]) & 1])

    def open_push(self) -> Vector | None:
        """Return what an open exchange has computed so far, 0 elsewhere; None if none is open."""
        return np.array(self._pending) if int(self._state[0]) & _OPEN else None


@dataclass
class Account:
    """The ledgers of all processes of a run together."""

    total: Any = 0.0
    open_pushes: list[Vector] = field(default_factory=list)
    granted: list[tuple[int, int]] = field(default_factory=list)
    finished: list[tuple[int, int]] = field(default_factory=list)

    def take(self, folder: Path) -> None:
        """Add the files of ended processes, and remove the files."""
        for path in sorted(folder.glob("*.grants")):
            for line in path.read_bytes().splitlines():
                status, start, stop = json.loads(line)
                (self.finished if status == "done" else self.granted).append((start, stop))
            path.unlink()
        for path in sorted(folder.glob("*.pushes")):
            ledger = PushLedger(path, (path.stat().st_size - 8) // 20)
            self.total = self.total + ledger.total()
            push = ledger.open_push()
            if push is not None and push.any():
                self.open_pushes.append(push)
            path.unlink()


@dataclass(frozen=True)
class StepCount:
    """Steps of the clock: steps unknown to all workers without a death as explanation; steps done twice."""

    lost: int
    twice: int


def count_steps(account: Account, first: int, stop: int) -> StepCount:
    """Compare what workers noted as acknowledged with the clock from ``first`` to ``stop``.

    A worker killed after the server's answer and before its note leaves a grant without a note; the clock has the
    steps. A step that is in no grant at all was never given out. What lies behind ``stop`` was done for nothing, since
    the next driver went on from there.
    """
    n = max([stop, *(end for _, end in (*account.finished, *account.granted))])
    finished, granted = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for start, end in account.finished:
        finished[start:end] += 1
    for start, end in account.granted:
        granted[start:end] += 1
    span = slice(first, stop)
    return StepCount(int(((finished == 0) & (granted == 0))[span].sum()), int((finished > 1)[span].sum()))


@dataclass(frozen=True)
class CenterCheck:
    """The center against the sum of what was pushed.

    Attributes:
        n_open: Exchanges that a death or a fence interrupted.
        off: Chunks in which something is missing, or there twice.
        worst: Largest difference that is not explained, of a single parameter.
    """

    n_open: int
    off: int
    worst: float


def check_center(
    initial: Vector, final: Vector, account: Account, spans: Sequence[slice], *, tolerance: float = 2e-4
) -> CenterCheck:
    """Explain each chunk of the center: initial values, all ended exchanges, and open exchanges once or not at all."""
    residual = final.astype(np.float64) - initial.astype(np.float64) - account.total
    off, worst = 0, 0.0
    for span in spans:
        residual_part = residual[span]
        pushes = [push[span].astype(np.float64) for push in account.open_pushes if push[span].any()]
        if pushes:
            columns = np.stack(pushes, axis=1)
            shares = np.clip(np.round(np.linalg.lstsq(columns, residual_part, rcond=None)[0]), 0.0, 1.0)
            residual_part = residual_part - columns @ shares
        largest = float(np.abs(residual_part).max())
        worst = max(worst, largest)
        off += largest > tolerance
    return CenterCheck(len(account.open_pushes), off, worst)
